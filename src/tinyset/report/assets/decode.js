"use strict";
// From what the page stores to pixels: transposed 2x2 convolutions of stride 2 and a sigmoid, or a piece of a sheet.

function bytes(text) {
  const raw = atob(text);
  const array = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) array[i] = raw.charCodeAt(i);
  return array.buffer;
}

class CodeSet {
  constructor(data) {
    this.data = data;
    this.size = data.codeShape.reduce((a, b) => a * b, 1);
    this.first = [0];
    data.rows.forEach((count, c) => this.first.push(this.first[c] + count));
    this.numbers = new Int16Array(bytes(data.codes));
    this.layers = data.layers.map((layer) => ({
      from: layer.in,
      to: layer.out,
      weight: new Float32Array(bytes(layer.weight)),
      bias: new Float32Array(bytes(layer.bias)),
    }));
  }

  ready() {
    return Promise.resolve();
  }

  /** The numbers of a code; a blend of two codes is a code. */
  source(class_, row) {
    const area = this.size / this.data.codeShape[0];
    const start = (this.first[class_] + row) * this.size;
    return Float32Array.from({ length: this.size }, (_, i) => this.numbers[start + i] * this.data.scale[(i / area) | 0]);
  }

  /** Image data of a code through a decoder. */
  picture(code, decoder) {
    let [, height, width] = this.data.codeShape;
    let maps = code;
    for (const layer of this.layers) {
      maps = this.transposed(maps, height, width, layer, decoder);
      height *= 2;
      width *= 2;
    }
    const [channels, high, wide] = this.data.shape;
    const image = new ImageData(wide, high);
    for (let c = 0; c < 3; c++) {
      const plane = Math.min(c, channels - 1) * height * width;
      for (let y = 0; y < high; y++)
        for (let x = 0; x < wide; x++)
          image.data[4 * (y * wide + x) + c] = Math.round(255 / (1 + Math.exp(-maps[plane + y * width + x])));
    }
    for (let i = 3; i < image.data.length; i += 4) image.data[i] = 255;
    return image;
  }

  transposed(maps, height, width, layer, decoder) {
    const { from, to, weight, bias } = layer;
    const out = new Float32Array(to * 4 * height * width);
    const start = decoder * from * to * 4;
    for (let o = 0; o < to; o++)
      for (let dy = 0; dy < 2; dy++)
        for (let dx = 0; dx < 2; dx++)
          for (let y = 0; y < height; y++)
            for (let x = 0; x < width; x++) {
              let sum = bias[decoder * to + o];
              for (let c = 0; c < from; c++)
                sum += maps[(c * height + y) * width + x] * weight[start + ((c * to + o) * 2 + dy) * 2 + dx];
              out[(o * 2 * height + 2 * y + dy) * 2 * width + 2 * x + dx] = sum;
            }
    return out;
  }
}

class SheetSet {
  constructor(data) {
    this.data = data;
    this.sheets = data.sprites.map((sprite) => new Sheet(sprite, data.shape[2], data.shape[1]));
  }

  ready() {
    return Promise.all(this.sheets.map((sheet) => sheet.ready));
  }

  /** All images of a stored unit, as numbers, so that two can be blended. */
  source(class_, row) {
    const n = this.data.columns;
    const pieces = Array.from({ length: n }, (_, k) => this.sheets[class_].piece(row * n + k).data);
    const all = new Float32Array(n * pieces[0].length);
    pieces.forEach((piece, k) => all.set(piece, k * piece.length));
    return all;
  }

  picture(source, column) {
    const [, high, wide] = this.data.shape;
    const image = new ImageData(wide, high);
    const length = image.data.length;
    for (let i = 0; i < length; i++) image.data[i] = Math.round(source[column * length + i]);
    return image;
  }
}

class Sheet {
  constructor(sprite, width, height) {
    Object.assign(this, { across: sprite.across, width, height });
    const image = new Image();
    this.ready = new Promise((resolve) => {
      image.onload = () => {
        const canvas = document.createElement("canvas");
        canvas.width = image.width;
        canvas.height = image.height;
        this.context = canvas.getContext("2d", { willReadFrequently: true });
        this.context.drawImage(image, 0, 0);
        resolve();
      };
    });
    image.src = sprite.uri;
  }

  piece(i) {
    const x = (i % this.across) * this.width;
    const y = Math.floor(i / this.across) * this.height;
    return this.context.getImageData(x, y, this.width, this.height);
  }
}

function blend(a, b, share) {
  return a.map((value, i) => value * (1 - share) + b[i] * share);
}

function draw(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
