// Tables: a click on a head sorts (numbers by value, text by text, what is missing last), fields search
// and filter, columns fold away where there is no room, and a button gives what is shown as CSV.
// What a reader chose stands in the address: #place?TABLE.sort=KEY-&TABLE.q=WORDS&TABLE.KEY=TEXT
const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
class DataTable {
  constructor(box) {
    this.box = box;
    this.table = box.querySelector("table");
    this.heads = [...this.table.tHead.rows[this.table.tHead.rows.length - 1].cells];
    this.keys = this.heads.map((head) => head.dataset.key);
    this.body = this.table.tBodies[0];
    this.rows = [...this.body.rows];
    // Cells that are folded away leave the page, so that sorting need not carry them.
    this.cells = new Map(this.rows.map((row) => [row, [...row.cells]]));
    this.texts = null;
    this.field = box.querySelector("input[type=search]");
    this.selects = [...box.querySelectorAll("select[data-key]")];
    this.sorter = box.querySelector(".sorter select");
    this.most = Number(box.dataset.most ?? 0);
    this.wide = false;
    this.heads.forEach((head, at) => {
      head.querySelector("button").addEventListener("click", () => this.sort(at));
    });
    this.field?.addEventListener("input", () => this.filter());
    this.selects.forEach((select) => select.addEventListener("change", () => this.filter()));
    this.sorter?.addEventListener("change", () => {
      const at = this.keys.indexOf(this.sorter.value);
      if (at >= 0) this.sort(at, this.heads[at].classList.contains("number"));
    });
    box.querySelector(".csv")?.addEventListener("click", () => this.download());
    box.querySelector(".more")?.addEventListener("click", () => { this.most = 0; this.filter(false); });
    box.querySelector(".columns")?.addEventListener("click", () => { this.wide = !this.wide; this.fold(); });
    this.restore();
    this.folding = [...this.heads.keys()].filter((at) => this.heads[at].dataset.fold)
      .sort((a, b) => this.heads[b].dataset.fold - this.heads[a].dataset.fold || b - a);
  }
  value(row, at) {
    const cell = this.cells.get(row)[at];
    const raw = cell.dataset.value;
    if (raw === undefined) return cell.textContent.trim() === "-" ? null : cell.textContent.trim();
    const number = Number(raw);
    return raw === "" ? null : Number.isNaN(number) ? raw : number;
  }
  sort(at, falling, keep = true) {
    const before = this.heads[at].getAttribute("aria-sort");
    const down = falling ?? before === "ascending";
    this.heads.forEach((head) => head.removeAttribute("aria-sort"));
    this.heads[at].setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    const keyed = this.rows.map((row) => [this.value(row, at), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      if (typeof a === "number" && typeof b === "number") return sign * (a - b);
      return sign * order.compare(a, b);
    });
    this.rows = keyed.map(([, row]) => row);
    this.body.append(...this.rows);
    if (this.sorter) this.sorter.value = this.keys[at];
    if (this.most) this.filter(false);
    if (keep) address.write({ [`${this.box.id}.sort`]: this.keys[at] + (down ? "-" : "") });
  }
  filter(keep = true) {
    const words = (this.field?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    this.texts ??= new Map(this.rows.map((row) => [row, this.cells.get(row).map((cell) => cell.textContent).join(" ").toLowerCase()]));
    const chosen = this.selects.map((s) => [this.keys.indexOf(s.dataset.key), s.value]).filter(([, v]) => v);
    let shown = 0;
    for (const row of this.rows) {
      const found = words.every((word) => this.texts.get(row).includes(word))
        && chosen.every(([at, text]) => this.cells.get(row)[at].firstChild?.textContent.trim() === text);
      row.hidden = !found || (this.most > 0 && !words.length && !chosen.length && shown >= this.most);
      if (found) shown += 1;
    }
    const none = this.box.querySelector(".none");
    if (none) none.hidden = shown > 0;
    const more = this.box.querySelector(".more");
    if (more) more.hidden = this.most === 0;
    if (!keep) return;
    const state = { [`${this.box.id}.q`]: this.field?.value };
    this.selects.forEach((select) => { state[`${this.box.id}.${select.dataset.key}`] = select.value; });
    address.write(state);
  }
  restore() {
    const { state } = address.read();
    const name = this.box.id;
    if (this.field) this.field.value = state.get(`${name}.q`) ?? "";
    this.selects.forEach((select) => { select.value = state.get(`${name}.${select.dataset.key}`) ?? ""; });
    if (this.most || this.field?.value || this.selects.some((select) => select.value)) this.filter(false);
    const sorted = state.get(`${name}.sort`) ?? "";
    const at = this.keys.indexOf(sorted.replace(/-$/, ""));
    if (at >= 0) this.sort(at, sorted.endsWith("-"), false);
  }
  // Columns that may fold go, the last first, until the table fits; a button brings them back.
  fold() {
    if (!this.folding.length) return;
    const button = this.box.querySelector(".columns");
    const frame = this.box.querySelector(".scroll");
    if (this.folding.some((at) => this.heads[at].hidden)) {
      this.folding.forEach((at) => { this.heads[at].hidden = false; });
      for (const row of this.rows) row.replaceChildren(...this.cells.get(row));
    }
    this.spans();
    let hidden = 0;
    if (!this.wide && getComputedStyle(this.table).display === "table") {
      // A table that is too wide has columns as narrow as they can be: their widths tell how many go.
      let over = frame.scrollWidth - frame.clientWidth;
      const widths = this.heads.map((head) => head.offsetWidth);
      for (const at of this.folding) {
        if (over <= 1) break;
        this.heads[at].hidden = true;
        over -= widths[at];
        hidden += 1;
      }
      const gone = this.folding.slice(0, hidden);
      for (const row of this.rows) gone.forEach((at) => this.cells.get(row)[at].remove());
    }
    this.spans();
    button.hidden = !hidden && !this.wide;
    button.textContent = this.wide ? "Fewer columns" : `${hidden} more ${hidden === 1 ? "column" : "columns"}`;
  }
  // Headings above several columns span those that are shown.
  spans() {
    const groups = this.table.querySelector("tr.groups");
    if (!groups) return;
    let at = 0;
    for (const cell of groups.cells) {
      cell.dataset.span ??= cell.colSpan;
      const own = this.heads.slice(at, at + Number(cell.dataset.span));
      at += own.length;
      const shown = own.filter((head) => !head.hidden).length;
      cell.hidden = !shown;
      if (shown) cell.colSpan = shown;
    }
  }
  csv() {
    const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const named = this.heads.map((head) => [head.dataset.group, head.textContent.trim()].filter(Boolean).join(" "));
    const spread = this.heads.map((_, at) => this.rows.some((row) => this.cells.get(row)[at].dataset.low !== undefined));
    const line = (cells) => cells.map((text) => quoted(String(text ?? ""))).join(",");
    const lines = [line(named.flatMap((name, at) => (spread[at] ? [name, `${name} low`, `${name} high`] : [name])))];
    for (const row of this.rows.filter((one) => !one.hidden || this.most)) {
      lines.push(line(this.cells.get(row).flatMap((cell, at) => {
        const text = cell.dataset.value ?? (cell.firstChild?.textContent ?? "").trim();
        return spread[at] ? [text, cell.dataset.low, cell.dataset.high] : [text];
      })));
    }
    return `${lines.join("\n")}\n`;
  }
  download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    link.download = `${this.box.id}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
const tables = new Map([...document.querySelectorAll("div.table")].map((box) => [box.id, new DataTable(box)]));
const foldAll = () => tables.forEach((one) => one.fold());
foldAll();
addEventListener("resize", foldAll);
addEventListener("hashchange", () => tables.forEach((one) => one.restore()));
// On paper all columns are there, in smaller print.
addEventListener("beforeprint", () => tables.forEach((one) => { one.printed = one.wide; one.wide = true; one.fold(); }));
addEventListener("afterprint", () => tables.forEach((one) => { one.wide = one.printed; one.fold(); }));
{
  const { place, state } = address.read();
  if (place && [...state].length) document.getElementById(place)?.scrollIntoView();
}
