// Pointing at a number says more: its interval, and a picture under that corruption where there is one.
{
  const hint = document.getElementById("hint");
  const sheets = JSON.parse(document.getElementById("sheets")?.textContent ?? "{}");
  const place = (event) => {
    const box = hint.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const under = event.clientY + 16;
    const y = under + box.height > innerHeight ? event.clientY - box.height - 12 : under;
    hint.style.left = `${Math.max(4, x)}px`;
    hint.style.top = `${Math.max(4, y)}px`;
  };
  const tile = (sheet, name) => {
    const number = sheet.places[name];
    if (number === undefined) return null;
    const shown = document.createElement("div");
    const scale = 128 / sheet.tile;
    const rows = Math.ceil(Object.keys(sheet.places).length / sheet.across);
    Object.assign(shown.style, {
      width: "128px", height: "128px", imageRendering: sheet.tile < 96 ? "pixelated" : "auto", borderRadius: "4px",
      backgroundImage: `url(${sheet.source})`,
      backgroundSize: `${sheet.across * sheet.tile * scale}px ${rows * sheet.tile * scale}px`,
      backgroundPosition: `-${(number % sheet.across) * 128}px -${Math.floor(number / sheet.across) * 128}px`,
    });
    shown.className = "tile";
    return shown;
  };
  const show = (cell, event) => {
    if (cell.title) { cell.dataset.said = cell.title; cell.removeAttribute("title"); }
    hint.replaceChildren();
    const sheet = sheets[cell.closest("[data-sheet]")?.dataset.sheet];
    const name = cell.querySelector("[data-picture]")?.dataset.picture;
    if (sheet && name) {
      const pair = document.createElement("div");
      pair.style.cssText = "display:flex;gap:6px;margin-bottom:6px";
      pair.append(...[tile(sheet, ""), tile(sheet, name)].filter(Boolean));
      hint.append(pair);
    }
    hint.append(cell.dataset.said ?? "");
    hint.hidden = false;
    place(event);
  };
  for (const area of document.querySelectorAll(".pictured")) {
    let last = null;
    area.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td");
      if (cell && (cell.title || cell.dataset.said)) { last = cell; show(cell, event); } else { hint.hidden = true; }
    });
    area.addEventListener("pointermove", (event) => { if (last && !hint.hidden) place(event); });
    area.addEventListener("pointerleave", () => { hint.hidden = true; });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hint.hidden = true; });
}
// Soups: a handle that moves over the mixtures that were tried.
const made = (name, attributes, words) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (words !== undefined) element.textContent = words;
  return element;
};
class Explorer {
  constructor(box) {
    this.box = box;
    this.data = JSON.parse(document.getElementById(`${box.id}-data`).textContent);
    this.count = Number(box.dataset.corners);
    this.corners = [...box.querySelectorAll("select.corner")];
    this.condition = box.querySelector("select.condition");
    this.corners.forEach((one) => one.addEventListener("change", () => this.draw()));
    this.condition?.addEventListener("change", () => this.draw());
    box.querySelector(".go-best").addEventListener("click", () => this.rest(this.best()));
    this.draw();
  }
  get members() {
    return this.corners.length ? this.corners.map((one) => Number(one.value)) : [...Array(this.count).keys()];
  }
  get shown() { return this.condition?.value ?? Object.keys(this.data.scores)[0]; }
  place(weights) {
    const [, second, third = 0] = this.members.map((member) => weights[member]);
    if (this.count === 2) return [60 + 340 * second, 90];
    return [60 + 340 * (second + third / 2), 360 - 340 * third * Math.sqrt(3) / 2];
  }
  best() {
    const scores = this.data.scores[this.shown];
    return this.dots.reduce((a, b) => (scores[b.row][0] > scores[a.row][0] ? b : a));
  }
  draw() {
    const chosen = this.members;
    const rows = [...this.data.weights.keys()].filter((row) =>
      this.data.weights[row].every((w, member) => chosen.includes(member) || Math.abs(w) < 1e-9));
    this.dots = rows.map((row) => ({ row, at: this.place(this.data.weights[row]) }));
    const stage = this.box.querySelector(".stage");
    const xs = this.dots.map((dot) => dot.at[0]).concat(60, 400);
    const ys = this.dots.map((dot) => dot.at[1]).concat(this.count === 2 ? [60, 120] : [66, 360]);
    const [left, top] = [Math.min(...xs) - 60, Math.min(...ys) - 44];
    const size = [Math.max(...xs) - left + 60, Math.max(...ys) - top + 50];
    const svg = made("svg", { viewBox: [left, top, ...size].join(" ") });
    const ends = chosen.map((member) => this.place(this.data.members.map((_, other) => Number(other === member))));
    svg.append(made("polygon", { class: "edge", points: ends.join(" ") }));
    const scores = this.data.scores[this.shown];
    const values = rows.map((row) => scores[row][0]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const radius = this.dots.length > 150 ? 6 : this.dots.length > 60 ? 9 : 13;
    for (const dot of this.dots) {
      const share = high > low ? (scores[dot.row][0] - low) / (high - low) : 1;
      const disc = made("circle", { cx: dot.at[0], cy: dot.at[1], r: radius });
      disc.style.fill = `color-mix(in srgb, var(--series-1) ${Math.round(12 + 88 * share)}%, var(--card))`;
      disc.append(made("title", {}, this.words(dot.row)));
      svg.append(disc);
    }
    ends.forEach(([x, y], at) => {
      const above = this.count === 3 && at === 2;
      const anchor = above || this.count === 3 ? "middle" : at ? "end" : "start";
      svg.append(made("text", { x, y: above ? y - 22 : y + 34, "text-anchor": anchor }, this.data.members[chosen[at]]));
    });
    this.handle = made("circle", { class: "handle", r: radius + 5, tabindex: 0, role: "slider", "aria-label": "Mixture",
      "aria-valuemin": 0, "aria-valuemax": Math.max(0, this.dots.length - 1) });
    svg.append(this.handle);
    svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); this.drag(svg, event); });
    svg.addEventListener("pointermove", (event) => { if (event.buttons) this.drag(svg, event); });
    this.handle.addEventListener("keydown", (event) => this.step(event));
    stage.replaceChildren(svg);
    if (this.dots.length) this.rest(this.best());
  }
  drag(svg, event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const far = (dot) => (dot.at[0] - point.x) ** 2 + (dot.at[1] - point.y) ** 2;
    this.rest(this.dots.reduce((a, b) => (far(b) < far(a) ? b : a)));
    event.preventDefault();
  }
  step(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const [x, y] = this.now.at;
    // The nearest one in that direction; what lies aside counts double.
    const ahead = this.dots.map((dot) => {
      const [dx, dy] = [dot.at[0] - x, dot.at[1] - y];
      const along = dx * way[0] + dy * way[1];
      return { dot, along, cost: along + 2 * Math.abs(dx * way[1]) + 2 * Math.abs(dy * way[0]) };
    }).filter((one) => one.along > 1e-6);
    if (ahead.length) this.rest(ahead.reduce((a, b) => (b.cost < a.cost ? b : a)).dot);
  }
  percent(value) { return `${(100 * value).toFixed(1)} %`; }
  words(row) {
    const mixed = this.members.map((m) => `${this.data.members[m]} ${+this.data.weights[row][m].toFixed(3)}`).join(", ");
    return `${mixed}: ${this.shown} ${this.percent(this.data.scores[this.shown][row][0])}`;
  }
  rest(dot) {
    this.now = dot;
    this.handle.setAttribute("cx", dot.at[0]);
    this.handle.setAttribute("cy", dot.at[1]);
    this.handle.setAttribute("aria-valuenow", this.dots.indexOf(dot));
    this.handle.setAttribute("aria-valuetext", this.words(dot.row));
    const list = (pairs) => {
      const found = document.createElement("dl");
      for (const [name, text] of pairs) {
        const [term, value] = [document.createElement("dt"), document.createElement("dd")];
        [term.textContent, value.textContent] = [name, text];
        found.append(term, value);
      }
      return found;
    };
    const title = (words) => { const head = document.createElement("h5"); head.textContent = words; return head; };
    const scores = Object.entries(this.data.scores).map(([name, rows]) => {
      const [value, low, high] = rows[dot.row];
      return [name, `${this.percent(value)} (${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)})`];
    });
    this.box.querySelector(".told").replaceChildren(
      title("Weights"), list(this.members.map((m) => [this.data.members[m], this.data.weights[dot.row][m].toFixed(2)])),
      title("Accuracy"), list(scores));
  }
}
document.querySelectorAll(".explorer").forEach((box) => new Explorer(box));
