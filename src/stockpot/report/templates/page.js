// Tables sort by a click (or Enter) on a column's head: numbers by value, the rest by text.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const value = (row, index) => {
    const cell = row.cells[index];
    const raw = cell.dataset.value ?? cell.textContent;
    const number = parseFloat(raw);
    return Number.isNaN(number) ? cell.textContent.trim().toLowerCase() : number;
  };
  const sort = (index) => {
    const falling = heads[index].getAttribute("aria-sort") === "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[index].setAttribute("aria-sort", falling ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a, index), value(b, index)];
      return (x > y) - (x < y);
    });
    body.append(...(falling ? rows.reverse() : rows));
  };
  heads.forEach((head, index) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(index));
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort(index));
  });
}
