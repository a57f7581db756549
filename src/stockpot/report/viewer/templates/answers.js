// What models answered. A page from a folder may not fetch, but it may load scripts: each file of data
// calls `stockpotChunk` with its name. Bits and numbers stay packed until somebody looks at them.
const NOTHING = 0xffff;
const waiting = new Map();
function chunk(name) {
  if (!waiting.has(name)) {
    const one = {};
    one.promise = new Promise((resolve, reject) => { one.resolve = resolve; one.reject = reject; });
    waiting.set(name, one);
  }
  return waiting.get(name);
}
function stockpotChunk(name, value) { chunk(name).resolve(value); }
function load(name) {
  const one = chunk(name);
  if (!one.asked) {
    one.asked = true;
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onerror = () => one.reject(new Error(`data/${name}.js is missing`));
    script.onload = () => script.remove();
    document.head.append(script);
  }
  return one.promise;
}
function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) found[at] = raw.charCodeAt(at);
  return found;
}
const POPULATION = Uint8Array.from({ length: 256 }, (_, value) => {
  let count = 0;
  for (let bits = value; bits; bits &= bits - 1) count += 1;
  return count;
});
const bit = (mask, row) => (mask[row >> 3] >> (row & 7)) & 1;

// Which images are shown, as a question to the bits of A and B: eight images at a time.
const SHOWS = {
  ab: { name: "A wrong, B right", two: true, of: (a, b) => ~a & b },
  ba: { name: "A right, B wrong", two: true, of: (a, b) => a & ~b },
  none: { name: "both wrong", two: true, of: (a, b) => ~a & ~b },
  both: { name: "both right", two: true, of: (a, b) => a & b },
  a: { name: "A wrong", two: false, of: (a) => ~a },
  right: { name: "A right", two: false, of: (a) => a },
  all: { name: "all images", two: false, of: () => 0xff },
};

// The images of one set, and what models did with them.
class Images {
  constructor(number, about) {
    Object.assign(this, about);
    this.number = number;
    this.bits = new Map();
    this.answers = new Map();
    this.labels = null;
    this.names = null;
    this.lower = null;
    this.lowerClasses = this.classes.map((name) => name.toLowerCase());
    this.sheets = new Map();
    for (const [where, sheet] of Object.entries(this.pictures)) {
      this.sheets.set(where, { ...sheet, place: new Map(sheet.rows.map((row, at) => [row, at])) });
    }
  }
  async open(model) {
    const asked = [load(`${this.number}/right-${model}`)];
    if (this.labelled && !this.labels) asked.push(load(`${this.number}/labels`));
    const [packed, labels] = await Promise.all(asked);
    if (labels) this.labels = new Uint16Array(bytes(labels).buffer);
    if (!this.bits.has(model)) this.bits.set(model, { packed, masks: new Map() });
  }
  async openNames() {
    if (this.named && !this.names) this.names = await load(`${this.number}/names`);
  }
  async openAnswers(model, condition) {
    const key = `${model}-${condition}`;
    if (model < 0 || condition < 0 || this.conditions[condition].known[model] < 2 || this.answers.has(key)) return;
    const [predictions, sure] = await load(`${this.number}/said-${key}`);
    this.answers.set(key, { predictions: new Uint16Array(bytes(predictions).buffer), sure: bytes(sure) });
  }
  said(model, condition) { return this.answers.get(`${model}-${condition}`); }
  right(model, condition) {
    const own = this.bits.get(model);
    if (!own || own.packed[condition] === undefined) return null;
    if (!own.masks.has(condition)) own.masks.set(condition, bytes(own.packed[condition]));
    return own.masks.get(condition);
  }
  // The bits of the images that a question finds under a condition; null where it was not measured.
  found(show, a, b, condition) {
    const { two, of } = SHOWS[show];
    const first = this.right(a, condition);
    const second = two ? this.right(b, condition) : first;
    if (!first || !second) return null;
    const mask = new Uint8Array(first.length);
    for (let at = 0; at < mask.length; at += 1) mask[at] = of(first[at], second[at]);
    if (this.n & 7) mask[mask.length - 1] &= (1 << (this.n & 7)) - 1;
    return mask;
  }
  share(model, condition) {
    const mask = this.right(model, condition);
    return mask ? count(mask) / this.n : null;
  }
  name(row) { return this.names?.[row] ?? `image ${row}`; }
  className(code) { return code === undefined || code === NOTHING ? null : this.classes[code]; }
  // Whether each word stands in the image's name, its class, or an answer to it.
  matcher(text, answers) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && this.names && !this.lower) this.lower = this.names.map((name) => name.toLowerCase());
    const classes = words.map((word) => this.lowerClasses.map((name) => name.includes(word)));
    return (row) => words.every((word, at) => this.lower?.[row].includes(word)
      || (this.labels && classes[at][this.labels[row]])
      || answers.some((said) => said && classes[at][said.predictions[row]]));
  }
}
function count(mask) {
  let sum = 0;
  for (let at = 0; at < mask.length; at += 1) sum += POPULATION[mask[at]];
  return sum;
}
