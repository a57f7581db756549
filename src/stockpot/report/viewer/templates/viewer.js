// The page: what is asked stands in the address, and everything shown follows from it.
const PAGE = 48;
const WORDS = { "✓": "right", "✗": "wrong", "–": "not measured" };
const $ = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
function make(kind, attributes = {}, ...inside) {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...inside.filter((part) => part !== null && part !== undefined));
  return made;
}
class Viewer {
  constructor(index) {
    this.sets = index.sets.map((about, number) => new Images(number, about));
    this.rows = [];
    this.turn = 0;
    for (const id of ["set", "a", "b", "class", "said", "sort"]) {
      $(id).addEventListener("change", () => this.ask({ [id]: $(id).value, page: "", image: "", ...(id === "set" ? { a: "", b: "", on: "", class: "", said: "", q: "" } : {}) }));
    }
    $("ask").addEventListener("submit", (event) => event.preventDefault());
    let pause = 0;
    $("q").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(() => this.ask({ q: $("q").value, page: "" }), 120); });
    $("swap").addEventListener("click", () => this.swap());
    $("before").addEventListener("click", () => this.leaf(-1));
    $("after").addEventListener("click", () => this.leaf(1));
    $("former").addEventListener("click", () => this.walk(-1));
    $("next").addEventListener("click", () => this.walk(1));
    $("close").addEventListener("click", () => $("one").close());
    $("one").addEventListener("close", () => { if (address.read().state.get("image")) this.ask({ image: "" }); });
    addEventListener("hashchange", () => this.show());
    addEventListener("keydown", (event) => this.key(event));
    if (matchMedia("(max-width: 820px)").matches) $("where").open = false;
    this.options($("set"), this.sets.map((set) => [set.title, `${set.title} (${set.n.toLocaleString()})`]));
  }
  options(select, pairs) {
    select.replaceChildren(...pairs.map(([value, text]) => make("option", { value }, text)));
  }
  ask(changes) { address.write(changes); return this.show(); }
  // From the address: names there, numbers here; what is not known is as if it were not said.
  read() {
    const { state } = address.read();
    const set = this.sets.find((one) => one.title === state.get("set")) ?? this.sets[0];
    const a = Math.max(0, set.models.indexOf(state.get("a")));
    let b = state.get("b") === "-" ? -1 : set.models.indexOf(state.get("b"));
    if (b < 0 && state.get("b") !== "-") b = set.models.findIndex((_, model) => model !== a);
    const on = state.get("on") === "any" ? -1 : Math.max(0, set.conditions.findIndex((one) => one.id === state.get("on")));
    const asked = state.get("show");
    const show = SHOWS[asked] && (b >= 0 || !SHOWS[asked].two) ? asked : b >= 0 ? "ab" : "a";
    const image = /^\d+$/.test(state.get("image") ?? "") ? Number(state.get("image")) : -1;
    return {
      set, a, b, on, show, image: image < set.n ? image : -1,
      class: set.classes.indexOf(state.get("class")), said: set.classes.indexOf(state.get("said")),
      q: state.get("q") ?? "", sort: state.get("sort") ?? "", page: Math.max(1, Number(state.get("page")) || 1),
    };
  }
  async show() {
    const turn = this.turn += 1;
    const now = this.read();
    const { set, a, b, on } = now;
    $("found").setAttribute("aria-busy", "true");
    try {
      await Promise.all([set.open(a), b >= 0 ? set.open(b) : null, now.q ? set.openNames() : null,
        set.openAnswers(a, on), set.openAnswers(b, on)]);
    } catch (problem) {
      $("count").textContent = `${problem.message}: copy the whole folder.`;
      return;
    }
    if (turn !== this.turn) return;
    this.now = now;
    this.controls();
    this.find();
    this.conditions();
    this.tiles();
    this.detail();
    if (set.named && !set.names) {
      await set.openNames();
      if (turn !== this.turn) return;
      this.tiles();
      this.detail();
    }
    $("found").setAttribute("aria-busy", "false");
  }
  controls() {
    const { set, a, b, show, q, sort } = this.now;
    if (this.shown !== set) {
      this.shown = set;
      this.options($("a"), set.models.map((name) => [name, name]));
      this.options($("b"), [["-", "no other"], ...set.models.map((name) => [name, name])]);
      const used = set.labels ? [...new Set(set.labels)].filter((code) => code !== NOTHING) : [];
      const sorted = (codes) => codes.map((code) => set.classes[code]).sort(order.compare).map((name) => [name, name]);
      this.options($("class"), [["", "all"], ...sorted(used)]);
      this.options($("said"), [["", "all"], ...sorted([...set.classes.keys()])]);
      $("about").textContent = set.why ? `No pictures: ${set.why}.` : "";
      $("about").hidden = !set.why;
    }
    $("set").value = set.title;
    $("a").value = set.models[a];
    $("b").value = b < 0 ? "-" : set.models[b];
    $("class").value = this.now.class < 0 ? "" : set.classes[this.now.class];
    $("said").value = this.now.said < 0 ? "" : set.classes[this.now.said];
    $("sort").value = sort;
    if ($("q") !== document.activeElement || q === "") $("q").value = q;
    $("swap").disabled = b < 0;
    const kinds = Object.entries(SHOWS).filter(([, kind]) => b >= 0 || !kind.two);
    $("show").replaceChildren(...kinds.map(([key, kind]) => make("button", {
      type: "button", "aria-pressed": key === show, onclick: () => this.ask({ show: key, page: "" }),
    }, kind.name)));
  }
  // The images that are found under any of these conditions, and under each.
  union(conditions) {
    const { set, a, b, show } = this.now;
    const masks = [...conditions].map((condition) => set.found(show, a, b, condition)).filter(Boolean);
    const all = new Uint8Array((set.n + 7) >> 3);
    for (const mask of masks) for (let at = 0; at < all.length; at += 1) all[at] |= mask[at];
    return [all, masks];
  }
  // The rows that are asked for, in their order.
  find() {
    const { set, a, b, on, show } = this.now;
    const [all, masks] = this.union(on < 0 ? set.conditions.keys() : [on]);
    this.masks = masks;
    const answers = [set.said(a, on), b < 0 ? null : set.said(b, on)];
    const matches = this.now.q ? set.matcher(this.now.q, answers) : null;
    const rows = [];
    for (let row = 0; row < set.n; row += 1) {
      if (!bit(all, row)) continue;
      if (this.now.class >= 0 && set.labels?.[row] !== this.now.class) continue;
      if (this.now.said >= 0 && !answers.some((said) => said?.predictions[row] === this.now.said)) continue;
      if (matches && !matches(row)) continue;
      rows.push(row);
    }
    this.often = null;
    if (on < 0) this.often = new Map(rows.map((row) => [row, masks.reduce((sum, mask) => sum + bit(mask, row), 0)]));
    if (this.now.sort === "many" && this.often) rows.sort((x, y) => this.often.get(y) - this.often.get(x) || x - y);
    if (this.now.sort === "sure" && on >= 0) {
      const models = [[a, answers[0]], [b, answers[1]]].filter(([model, said]) => model >= 0 && said);
      const sure = new Map(rows.map((row) => [row, Math.max(-1, ...models.map(([model, said]) => (
        bit(set.right(model, on), row) || said.sure[row] === 255 ? -1 : said.sure[row])))]));
      rows.sort((x, y) => sure.get(y) - sure.get(x) || x - y);
    }
    this.rows = rows;
    this.pages = Math.max(1, Math.ceil(rows.length / PAGE));
    const where = on < 0 ? "any condition" : set.conditions[on].title;
    $("count").textContent = `${rows.length.toLocaleString()} of ${set.n.toLocaleString()} images: ${SHOWS[show].name}, ${where}`;
  }
  conditions() {
    const { set, a, b, on, show } = this.now;
    const counts = set.conditions.map((_, at) => { const mask = set.found(show, a, b, at); return mask ? count(mask) : null; });
    const most = Math.max(1, ...counts);
    $("legend").textContent = `How many images are “${SHOWS[show].name}” under each; A is ${set.models[a]}${b < 0 ? "" : `, B is ${set.models[b]}`}.`;
    const button = (at, ...text) => {
      const said = [a, ...(b < 0 ? [] : [b])].map((model, place) => {
        const share = set.share(model, at);
        return share === null ? null : `${"AB"[place]} ${percent(share)}`;
      }).filter(Boolean).join(", ");
      const made = make("button", {
        type: "button", class: text.length > 1 ? "row" : null, "aria-pressed": at === on, disabled: counts[at] === null,
        "aria-label": `${set.conditions[at].title}: ${counts[at] ?? "not measured"}${said ? ` (right: ${said})` : ""}`,
        title: `${set.conditions[at].title}; right: ${said || "not measured for both"}`,
        onclick: () => this.ask({ on: set.conditions[at].id, page: "" }),
      }, ...text);
      made.style.setProperty("--share", (counts[at] ?? 0) / most);
      return made;
    };
    const line = (at) => button(at, set.conditions[at].title, make("small", {}, counts[at] === null ? "–" : counts[at].toLocaleString()));
    const parts = [make("button", { type: "button", class: "row", "aria-pressed": on < 0, onclick: () => this.ask({ on: "any", page: "" }) }, "any condition", make("small", {}, count(this.union(set.conditions.keys())[0]).toLocaleString()))];
    const titles = { clean: "", corruption: "Corruptions by severity", attack: "Attacks", shift: "Shifts", dynamic: "Dynamic" };
    for (const [kind, title] of Object.entries(titles)) {
      const own = [...set.conditions.keys()].filter((at) => set.conditions[at].kind === kind);
      if (!own.length) continue;
      if (title) parts.push(make("h3", {}, title));
      const usual = own.filter((at) => kind === "corruption" && set.conditions[at].usual);
      if (usual.length) parts.push(this.grid("grid", usual, (at) => button(at, counts[at] === null ? "–" : String(counts[at]))));
      parts.push(...own.filter((at) => !usual.includes(at)).map(line));
    }
    $("conditions").replaceChildren(...parts);
  }
  // Corruptions down, severities across.
  grid(kind, own, cell) {
    const { set } = this.now;
    const levels = [...new Set(own.map((at) => set.conditions[at].severity))].sort((x, y) => x - y);
    const box = make("div", { class: kind }, make("span"), ...levels.map((level) => make("span", { class: "level" }, String(level))));
    box.style.setProperty("--levels", levels.length);
    for (const name of new Set(own.map((at) => set.conditions[at].corruption))) {
      box.append(make("span", {}, name.replaceAll("_", " ")));
      for (const level of levels) {
        const at = own.find((one) => set.conditions[one].corruption === name && set.conditions[one].severity === level);
        box.append(at === undefined ? make("span") : cell(at));
      }
    }
    return box;
  }
  // A picture as it was shown under the condition; else as it was before, which is said.
  sheet(row, on, model) {
    const { set } = this.now;
    return [`${on}-${model}`, String(on)].find((where) => set.sheets.get(where)?.place.has(row));
  }
  picture(row, on, model = this.now.a) {
    const { set } = this.now;
    const changed = on >= 0 && !["clean", "shift"].includes(set.conditions[on].kind);
    const where = (changed && this.sheet(row, on, model)) || "original";
    const sheet = set.sheets.get(where);
    const box = make("span", { class: "pic" });
    if (!sheet?.place.has(row)) { if (set.sheets.size) box.append(make("i", {}, "no picture")); return box; }
    const at = sheet.place.get(row);
    const each = set.across * set.across;
    const [file, place] = [Math.floor(at / each), at % each];
    const rows = Math.ceil(Math.min(each, sheet.rows.length - file * each) / set.across);
    const [across, down] = [place % set.across, Math.floor(place / set.across)];
    box.style.backgroundImage = `url("pictures/${set.number}/${where}/${file}.jpg")`;
    box.style.backgroundSize = `${100 * set.across}% ${100 * rows}%`;
    box.style.backgroundPosition = `${(100 * across) / (set.across - 1)}% ${rows > 1 ? (100 * down) / (rows - 1) : 0}%`;
    if (sheet.side < 100) box.classList.add("small");
    if (changed && where === "original") box.append(make("i", {}, "before"));
    return box;
  }
  answer(model, who, row, on) {
    const { set } = this.now;
    if (on < 0) return null;
    const mask = set.right(model, on);
    if (!mask) return make("span", { class: "said" }, make("span", { class: `who ${who}` }, who.toUpperCase()), "not measured");
    const right = bit(mask, row);
    const said = set.said(model, on);
    const name = said ? set.className(said.predictions[row]) ?? "no answer" : right ? "right" : "wrong";
    const sure = said && said.sure[row] < 255 ? ` ${Math.round((100 * said.sure[row]) / 254)}\u00a0%` : "";
    return make("span", { class: "said" }, make("span", { class: `who ${who}` }, who.toUpperCase()),
      make("span", { class: right ? "right" : "wrong" }, `${right ? "✓" : "✗"} ${name}${sure}`));
  }
  tiles() {
    const { set, a, b, on } = this.now;
    const page = this.page = Math.min(this.now.page, this.pages);
    const shown = this.rows.slice((page - 1) * PAGE, page * PAGE);
    $("place").textContent = `page ${page} of ${this.pages}`;
    $("before").disabled = page <= 1;
    $("after").disabled = page >= this.pages;
    $("nothing").hidden = shown.length > 0;
    $("found").replaceChildren(...shown.map((row) => make("button", {
      type: "button", class: "tile", "data-row": row, title: set.name(row), onclick: () => this.ask({ image: String(row) }),
    }, this.picture(row, on), make("b", {}, set.className(set.labels?.[row]) ?? set.name(row)),
      this.answer(a, "a", row, on), b < 0 ? null : this.answer(b, "b", row, on),
      this.often ? make("span", {}, `${this.often.get(row)} of ${this.masks.length} conditions`) : null)));
  }
  detail() {
    const { set, a, b, on, image } = this.now;
    const dialog = $("one");
    if (image < 0) { if (dialog.open) dialog.close(); return; }
    $("called").textContent = set.name(image);
    const figure = (picture, words) => make("figure", {}, picture, make("figcaption", {}, words));
    const pictures = make("div", { class: "pictures" }, figure(this.picture(image, -1), "as it is"));
    const changed = on >= 0 && !["clean", "shift"].includes(set.conditions[on].kind);
    const own = changed ? [a, ...(b < 0 ? [] : [b])].filter((model) => this.sheet(image, on, model)) : [];
    const shared = own.length && this.sheet(image, on, own[0]) === String(on);
    for (const model of shared ? own.slice(0, 1) : [...own].reverse()) {
      const whose = shared ? "" : ` to ${set.models[model]}`;
      pictures.prepend(figure(this.picture(image, on, model), `as it was shown${whose}: ${set.conditions[on].title}`));
    }
    if (changed && !own.length && set.sheets.size) pictures.append(make("p", { class: "meta" }, "The picture under this condition is not in this folder; this is the one it was made from."));
    const label = set.className(set.labels?.[image]);
    const told = make("div", {}, make("p", {}, make("b", {}, label === null ? "label not known" : label), ` · image ${image}`),
      on < 0 ? null : make("p", { class: "meta" }, `Under ${set.conditions[on].title}:`), this.answer(a, "a", image, on), b < 0 ? null : this.answer(b, "b", image, on));
    const models = [a, ...(b < 0 ? [] : [b])];
    const mark = (at) => {
      const marks = models.map((model) => { const mask = set.right(model, at); return mask ? (bit(mask, image) ? "✓" : "✗") : "–"; });
      const words = models.map((model, place) => `${"AB"[place]} ${WORDS[marks[place]]}`).join(", ");
      return make("button", { type: "button", "aria-pressed": at === on, "aria-label": `${set.conditions[at].title}: ${words}`, onclick: () => this.ask({ on: set.conditions[at].id }) },
        ...marks.map((sign) => make("span", { class: sign === "✓" ? "right" : sign === "✗" ? "wrong" : "" }, sign)));
    };
    const usual = [...set.conditions.keys()].filter((at) => set.conditions[at].kind === "corruption" && set.conditions[at].usual);
    const others = [...set.conditions.keys()].filter((at) => !usual.includes(at));
    told.append(make("h3", {}, `Right or wrong under every condition (${models.length > 1 ? "A, then B" : "A"})`),
      make("p", { class: "lines" }, ...others.map((at) => { const one = mark(at); one.prepend(`${set.conditions[at].title} `); return one; })),
      ...(usual.length ? [this.grid("marks", usual, mark)] : []));
    $("detail").replaceChildren(pictures, told);
    const at = this.rows.indexOf(image);
    $("former").disabled = at <= 0;
    $("next").disabled = at < 0 || at + 1 >= this.rows.length;
    if (!dialog.open) dialog.showModal();
  }
  swap() {
    const { set, a, b } = this.now;
    if (b >= 0) this.ask({ a: set.models[b], b: set.models[a], page: "" });
  }
  leaf(step) {
    const page = Math.min(this.pages, Math.max(1, this.page + step));
    if (page !== this.page) this.ask({ page: page > 1 ? String(page) : "" });
  }
  walk(step) {
    const at = this.rows.indexOf(this.now.image) + step;
    if (at >= 0 && at < this.rows.length) this.ask({ image: String(this.rows[at]), page: at >= PAGE ? String(1 + Math.floor(at / PAGE)) : "" });
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.now) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if ($("one").open) {
      if (event.key in steps) { event.preventDefault(); this.walk(steps[event.key]); }
      return;
    }
    if (event.target.closest?.("input, select, textarea")) return;
    const tile = event.target.closest?.(".tile");
    const wide = Math.max(1, Math.round($("found").clientWidth / ($("found").firstElementChild?.offsetWidth || 1)));
    const moves = { ...steps, ArrowUp: -wide, ArrowDown: wide };
    if (tile && event.key in moves) {
      const tiles = [...$("found").children];
      const other = tiles[tiles.indexOf(tile) + moves[event.key]];
      if (other) { event.preventDefault(); other.focus(); }
    } else if (event.key === "/") { event.preventDefault(); $("q").focus(); }
    else if (event.key === "n") this.leaf(1);
    else if (event.key === "p") this.leaf(-1);
    else if (event.key === "s") this.swap();
  }
}
load("index").then((index) => { window.viewer = new Viewer(index); return window.viewer.show(); })
  .catch((problem) => { $("count").textContent = problem.message; });
