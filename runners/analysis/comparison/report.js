"use strict";
(async () => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const hasTouch = matchMedia("(pointer: coarse)").matches;
  let axis = "time";

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  // Charts name colours by the custom properties of the style sheet.
  const withColours = (value) =>
    JSON.parse(JSON.stringify(value), (key, inner) =>
      /color$/.test(key) && typeof inner === "string" ? colour(inner) : inner);

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("plotly").textContent);
  document.head.append(script);

  const isNarrow = () => root.clientWidth < 600;
  const withFrame = (settings) => ({
    gridcolor: "--rule", linecolor: "--rule", zeroline: false, automargin: true, ...settings,
  });
  const horizontalAxis = (chart) => withFrame(chart.by[axis] && axis === "step"
    ? { ...chart.layout.xaxis, title: { text: "optimizer step" } }
    : chart.layout.xaxis);
  const verticalAxis = (chart) => withFrame(chart.layout.yaxis.ticktext && isNarrow()
    ? { ...chart.layout.yaxis, ticktext: chart.narrow }
    : chart.layout.yaxis);
  // On a phone each legend entry takes a line of its own.
  const height = (chart) =>
    chart.layout.height + (chart.layout.legend && isNarrow() ? 19 * chart.traces.length : 0);
  const layout = (chart) => withColours({
    margin: { l: 8, r: 16, t: 36, b: 48 }, // room for the mode bar above
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "--ink" },
    paper_bgcolor: "--paper",
    plot_bgcolor: "--paper",
    modebar: { color: "--muted", activecolor: "--ink", bgcolor: "--paper" },
    hoverlabel: { bgcolor: "--raised", bordercolor: "--rule", font: { color: "--ink" } },
    dragmode: hasTouch ? false : "zoom", // a finger scrolls the page
    ...chart.layout,
    height: height(chart),
    xaxis: horizontalAxis(chart),
    yaxis: verticalAxis(chart),
  });
  const traces = (chart) => withColours(chart.traces.map((trace, index) =>
    chart.by[axis] ? { ...trace, x: chart.by[axis][index] } : trace));
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: hasTouch ? true : "hover",
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };
  const draw = () => Promise.all(charts.map((chart) =>
    Plotly.react(document.getElementById(chart.id), traces(chart), layout(chart), config)));

  for (const button of document.querySelectorAll("[data-by]")) {
    button.addEventListener("click", () => {
      axis = button.dataset.by;
      for (const other of document.querySelectorAll("[data-by]")) {
        other.setAttribute("aria-pressed", String(other.dataset.by === axis));
      }
      draw();
    });
  }
  const themes = ["auto", "light", "dark"];
  const themeButton = document.getElementById("theme");
  themeButton.addEventListener("click", () => {
    const label = themeButton.querySelector("span");
    label.textContent = themes[(themes.indexOf(label.textContent) + 1) % themes.length];
    root.style.colorScheme = label.textContent === "auto" ? "" : label.textContent;
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  await draw();
  root.dataset.drawn = charts.length;
})();
