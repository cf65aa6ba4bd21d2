"use strict";
// Choose a class, hold one of code and decoder and walk the other, see the grid, blend two codes.

class Explorer extends Panels {
  constructor(root, sets) {
    super();
    this.root = root;
    this.sets = sets.map((data) => (data.codes ? new CodeSet(data) : new SheetSet(data)));
    this.state = { set: 0, class_: 0, row: 0, column: 0, tab: "grid", other: 1, share: 0.5 };
    this.timer = null;
    this.wire();
    this.openSet(0);
  }

  $(name) {
    return this.root.querySelector(`[data-part="${name}"]`);
  }

  get set() {
    return this.sets[this.state.set];
  }

  get data() {
    return this.set.data;
  }

  get rows() {
    return this.data.rows[this.state.class_];
  }

  // -- what is wired once --------------------------------------------------------------------------------------

  wire() {
    this.$("set").addEventListener("change", (event) => this.openSet(Number(event.target.value)));
    this.$("row").addEventListener("input", (event) => this.go({ row: Number(event.target.value) }));
    this.$("column").addEventListener("input", (event) => this.go({ column: Number(event.target.value) }));
    this.$("walk-row").addEventListener("click", () => this.walk("row"));
    this.$("walk-column").addEventListener("click", () => this.walk("column"));
    this.$("other").addEventListener("change", (event) => this.go({ other: Number(event.target.value) }));
    this.$("share").addEventListener("input", (event) => this.go({ share: Number(event.target.value) / 100 }));
    const tabs = [...this.root.querySelectorAll("[role=tab]")];
    for (const tab of tabs) tab.addEventListener("click", () => this.go({ tab: tab.dataset.tab }));
    roving(this.$("tabs"), () => tabs.filter((tab) => !tab.hidden), (tab) => this.go({ tab: tab.dataset.tab }));
    roving(this.$("classes"), () => [...this.$("classes").children], (chip) => this.openClass(Number(chip.dataset.index)));
    this.$("grid").addEventListener("keydown", (event) => this.gridKey(event));
  }

  async openSet(index) {
    this.stop();
    this.state.set = index;
    await this.set.ready();
    const chips = this.data.classes.map((name, c) => {
      const chip = element("button", { type: "button", role: "radio", className: "chip" });
      chip.dataset.index = c;
      chip.append(this.tile(this.set.source(c, 0), 0), element("span", { textContent: name }));
      chip.addEventListener("click", () => this.openClass(c));
      return chip;
    });
    this.$("classes").replaceChildren(...chips);
    const single = this.data.columns === 1;
    for (const part of this.root.querySelectorAll("[data-needs=columns]")) part.hidden = single;
    for (const part of this.root.querySelectorAll("[data-word]")) part.textContent = words(this.data, part.dataset.word);
    if (single && ["row-held", "column-held"].includes(this.state.tab)) this.state.tab = "grid";
    this.openClass(Math.min(this.state.class_, this.data.classes.length - 1));
  }

  openClass(index) {
    const state = this.state;
    Object.assign(state, { class_: index, column: Math.min(state.column, this.data.columns - 1) });
    state.row = Math.min(state.row, this.rows - 1);
    [...this.$("classes").children].forEach((chip, c) => {
      chip.setAttribute("aria-checked", c === index);
      chip.tabIndex = c === index ? 0 : -1;
    });
    const [box, chip] = [this.$("classes"), this.$("classes").children[index]];
    if (chip.offsetTop < box.scrollTop || chip.offsetTop + chip.offsetHeight > box.scrollTop + box.clientHeight)
      box.scrollTop = chip.offsetTop - box.clientHeight / 2;
    for (const [part, most] of [["row", this.rows - 1], ["column", this.data.columns - 1]]) {
      this.$(part).max = most;
      this.$(part).disabled = most === 0;
    }
    this.$("other").replaceChildren(
      ...Array.from({ length: this.rows }, (_, m) => element("option", { value: m, textContent: `${this.data.row} ${m}` })),
    );
    state.other = this.rows > 1 ? (state.row + 1) % this.rows : 0;
    const all = this.data.allRows[index];
    this.$("cut").textContent = all > this.rows ? `This page holds the first ${this.rows} of ${all} ${this.data.row}s.` : "";
    this.page = null;
    this.go({});
  }

  // -- every change passes here --------------------------------------------------------------------------------

  go(change) {
    if (!("row" in change && this.timer) && !("column" in change && this.timer)) this.stop();
    Object.assign(this.state, change);
    const { row, column, tab, other, share } = this.state;
    this.$("row").value = row;
    this.$("column").value = column;
    this.$("row-value").textContent = `${row} of 0–${this.rows - 1}`;
    this.$("column-value").textContent = `${column} of 0–${this.data.columns - 1}`;
    this.$("other").value = other;
    this.$("share").value = Math.round(share * 100);
    for (const button of this.root.querySelectorAll("[role=tab]")) {
      const on = button.dataset.tab === tab;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
      this.$(`panel-${button.dataset.tab}`).hidden = !on;
    }
    this.stage();
    ({ grid: () => this.grid(), "column-held": () => this.columnHeld(), "row-held": () => this.rowHeld(), blend: () => this.mix() })[tab]();
  }

  code() {
    const { class_, row, other, share, tab } = this.state;
    const code = this.set.source(class_, row);
    return tab === "blend" ? blend(code, this.set.source(class_, other), share) : code;
  }

  stage() {
    const { class_, row, column, tab, other, share } = this.state;
    draw(this.$("big"), this.set.picture(this.code(), column));
    const through = this.data.columns > 1 ? `, ${this.data.column} ${column}` : "";
    const what =
      tab === "blend"
        ? `${Math.round(100 - share * 100)} % ${this.data.row} ${row} + ${Math.round(share * 100)} % ${this.data.row} ${other}`
        : `${this.data.row} ${row}`;
    const said = `class ${this.data.classes[class_]}: ${what}${through}`;
    this.$("big").setAttribute("aria-label", `Synthetic image of ${said}`);
    this.$("where").textContent = capital(said);
    this.nearest(tab === "blend");
  }

  nearest(mixed) {
    const real = this.data.real;
    const box = this.$("real");
    box.hidden = !real;
    if (!real) return;
    const { class_, row, column } = this.state;
    const before = this.data.rows.slice(0, class_).reduce((a, b) => a + b, 0);
    const at = (before + row) * this.data.columns + column;
    const canvas = this.$("real-picture");
    canvas.hidden = mixed || !real.sheet;
    this.$("real-text").textContent = mixed
      ? "A blend stands for no stored image."
      : `Nearest training image: no. ${real.index[at]}, pixels differ by ${real.distance[at].toFixed(3)} (root mean square)`;
    if (canvas.hidden) return;
    this.realSheet ??= new Map();
    if (!this.realSheet.has(real)) this.realSheet.set(real, new Sheet(real.sheet, real.size[1], real.size[0]));
    const sheet = this.realSheet.get(real);
    sheet.ready.then(() => draw(canvas, sheet.piece(real.slot[at])));
    canvas.setAttribute("aria-label", `Real training image number ${real.index[at]}`);
  }

  // -- walking -------------------------------------------------------------------------------------------------

  walk(axis) {
    const running = this.timer && this.walking === axis;
    this.stop();
    if (running) return;
    this.walking = axis;
    this.$(`walk-${axis}`).setAttribute("aria-pressed", true);
    const step = () => this.go({ [axis]: (this.state[axis] + 1) % (axis === "row" ? this.rows : this.data.columns) });
    this.timer = setInterval(step, 350);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    for (const axis of ["row", "column"]) this.$(`walk-${axis}`).setAttribute("aria-pressed", false);
  }
}
