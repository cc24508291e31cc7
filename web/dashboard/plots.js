// Of the report and of the dashboard: follows the pointer, the nearest point's numbers go into the caption. The pages
// work without it.
globalThis.octavoPlots = (root) => {
  for (const figure of root.querySelectorAll(".plot")) {
    const svg = figure.querySelector("svg");
    const output = figure.querySelector("output");
    const cursor = figure.querySelector(".cursor");
    const lines = JSON.parse(figure.dataset.lines);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width;
      let text = "";
      let column;
      for (const line of lines) {
        if (!line.at.length || !line.name) continue;
        let best = 0;
        for (let i = 1; i < line.at.length; ++i) if (Math.abs(line.at[i] - at) < Math.abs(line.at[best] - at)) best = i;
        column ??= line.at[best];
        text += (text ? "   " : `${figure.dataset.x} ${line.x[best]}   `) + `${line.name} ${line.y[best]}`;
      }
      output.textContent = text;
      if (column === undefined) return;
      cursor.setAttribute("x1", `${100 * column}%`);
      cursor.setAttribute("x2", `${100 * column}%`);
      cursor.classList.add("on");
    });
    svg.addEventListener("pointerleave", () => {
      output.textContent = "";
      cursor.classList.remove("on");
    });
  }
};
globalThis.octavoPlots(document);
