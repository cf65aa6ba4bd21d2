"use strict";
// The four ways to look at a class: the grid, one decoder held, one code held, two codes blended.

class Panels {
  tile(source, column) {
    const canvas = element("canvas", { className: "tile" });
    canvas.setAttribute("aria-hidden", "true");
    draw(canvas, this.set.picture(source, column));
    return canvas;
  }

  grid() {
    const { class_, row, column } = this.state;
    const table = this.$("grid");
    const per = this.data.columns === 1 ? 240 : 24;
    const page = `${this.state.set}/${class_}/${Math.floor(row / per)}`;
    if (this.page !== page) {
      this.page = page;
      const first = Math.floor(row / per) * per;
      const last = Math.min(first + per, this.rows);
      this.buildGrid(table, first, last);
      this.pager(first, last, per);
    }
    for (const cell of table.querySelectorAll("[role=gridcell]")) {
      const here = Number(cell.dataset.row) === row && Number(cell.dataset.column) === column;
      cell.setAttribute("aria-selected", here);
      cell.tabIndex = here ? 0 : -1;
      const beside = this.data.columns > 1 && (Number(cell.dataset.row) === row || Number(cell.dataset.column) === column);
      cell.classList.toggle("beside", beside && !here);
    }
  }

  buildGrid(table, first, last) {
    const columns = this.data.columns;
    table.classList.toggle("gallery", columns === 1);
    table.classList.toggle("many", columns > 12);
    table.setAttribute("aria-label", `${this.data.row}s by ${this.data.column}s of class ${this.data.classes[this.state.class_]}`);
    const lines = [];
    if (columns > 1) {
      const head = element("tr");
      const corner = element("td", { role: "presentation" });
      corner.setAttribute("aria-hidden", "true");
      head.append(corner, ...Array.from({ length: columns }, (_, d) => element("th", { scope: "col", textContent: d })));
      lines.push(head);
    }
    for (let m = first; m < last; m++) {
      const line = element("tr");
      if (columns > 1) line.append(element("th", { scope: "row", textContent: m }));
      const source = this.set.source(this.state.class_, m);
      for (let d = 0; d < columns; d++) {
        const cell = element("td", { role: "gridcell" });
        Object.assign(cell.dataset, { row: m, column: d });
        cell.setAttribute("aria-label", columns > 1 ? `${this.data.row} ${m}, ${this.data.column} ${d}` : `${this.data.row} ${m}`);
        cell.append(this.tile(source, d));
        cell.addEventListener("click", () => this.go({ row: m, column: d }));
        line.append(cell);
      }
      lines.push(line);
    }
    table.replaceChildren(...lines);
  }

  pager(first, last, per) {
    const pager = this.$("pager");
    pager.hidden = this.rows <= per;
    this.$("pages").textContent = `${this.data.row}s ${first} to ${last - 1} of ${this.rows}`;
    const move = (by) => () => this.go({ row: Math.min(Math.max(first + by, 0), this.rows - 1) });
    this.$("earlier").onclick = move(-per);
    this.$("later").onclick = move(per);
    this.$("earlier").disabled = first === 0;
    this.$("later").disabled = last >= this.rows;
  }

  gridKey(event) {
    const { row, column, class_ } = this.state;
    const classes = this.data.classes.length;
    const single = this.data.columns === 1;
    const moves = {
      ArrowLeft: single ? { row: row - 1 } : { column: column - 1 },
      ArrowRight: single ? { row: row + 1 } : { column: column + 1 },
      ArrowUp: { row: row - 1 },
      ArrowDown: { row: row + 1 },
      Home: { row: 0, column: 0 },
      End: { row: this.rows - 1, column: this.data.columns - 1 },
    };
    if (event.key === "PageDown" || event.key === "PageUp") {
      event.preventDefault();
      this.openClass((class_ + (event.key === "PageDown" ? 1 : classes - 1)) % classes);
    } else if (moves[event.key]) {
      event.preventDefault();
      const { row: m = row, column: d = column } = moves[event.key];
      this.go({ row: clamp(m, this.rows), column: clamp(d, this.data.columns) });
    } else return;
    this.$("grid").querySelector("[tabindex='0']")?.focus();
  }

  columnHeld() {
    const { class_, row, column } = this.state;
    const items = Array.from({ length: this.rows }, (_, m) => [m, () => this.tile(this.set.source(class_, m), column)]);
    this.gallery("codes", this.data.row, items, row, (m) => this.go({ row: m }), `${this.state.set}/${class_}/${column}`);
  }

  rowHeld() {
    const { class_, row, column } = this.state;
    const source = this.set.source(class_, row);
    const items = Array.from({ length: this.data.columns }, (_, d) => [d, () => this.tile(source, d)]);
    this.gallery("decoders", this.data.column, items, column, (d) => this.go({ column: d }), `${this.state.set}/${class_}/${row}`);
  }

  mix() {
    const { class_, row, column, other } = this.state;
    const [a, b] = [this.set.source(class_, row), this.set.source(class_, other)];
    const steps = Array.from({ length: 11 }, (_, i) => i / 10);
    this.$("first").textContent = `${this.data.row} ${row}`;
    const shares = steps.map((share) => [`${Math.round(share * 100)} %`, () => this.tile(blend(a, b, share), column)]);
    const key = `${this.state.set}/${class_}/${row}/${other}/${column}`;
    this.gallery("mixes", "", shares, `${Math.round(this.state.share * 100)} %`, (text) => this.go({ share: parseInt(text) / 100 }), key);
    const mixed = blend(a, b, this.state.share);
    const through = Array.from({ length: this.data.columns }, (_, d) => [d, () => this.tile(mixed, d)]);
    this.gallery("through", this.data.column, through, column, (d) => this.go({ column: d }), `${key}/${this.state.share}`);
  }

  /** Buttons with a picture each; drawn again only when `key` changes, so that focus stays. */
  gallery(part, noun, items, selected, choose, key) {
    const box = this.$(part);
    if (box.dataset.key !== key) {
      box.dataset.key = key;
      const refocus = box.contains(document.activeElement);
      box.replaceChildren(
        ...items.map(([label, tile]) => {
          const button = element("button", { type: "button", className: "frame" });
          button.dataset.label = label;
          button.setAttribute("aria-label", noun ? `${noun} ${label}` : label);
          button.append(tile(), element("span", { textContent: label }));
          return button;
        }),
      );
      if (refocus) box.querySelector(`[data-label="${selected}"]`)?.focus();
    }
    for (const button of box.children) {
      button.setAttribute("aria-pressed", button.dataset.label === String(selected));
      button.onclick = () => choose(Number.isNaN(Number(button.dataset.label)) ? button.dataset.label : Number(button.dataset.label));
    }
  }
}
