// Mouse, touch, keys, and the first picture.
function redraw() {
  const began = performance.now();
  showWindow(drawTimeline());
  drawRates();
  drawOverview();
  markWitness();
  showDetail();
  showListing();
  document.body.dataset.drawMs = (performance.now() - began).toFixed(1);
}

function pick(x, y) {
  let best = -1, nearest = 14 ** 2;
  if (picture.mode === "density") return best;
  for (const place of picture.places) {
    const distance = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (distance < nearest) [best, nearest] = [place.i, distance];
  }
  return best;
}

function followPointer() {
  const canvas = canvases.timeline;
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 1200);
    else zoom(Math.exp(event.deltaY * 0.0016), picture.t(Math.max(GUTTER, event.offsetX)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, from: view.from, to: view.to, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = ((drag.x - event.offsetX) / (picture.width - GUTTER - RIGHT)) * (drag.to - drag.from);
      drag.moved ||= Math.abs(drag.x - event.offsetX) > 4;
      canvas.classList.toggle("dragging", drag.moved);
      if (drag.moved) show(drag.from + by, drag.to + by);
      return;
    }
    view.pointed = pick(event.offsetX, event.offsetY);
    canvas.style.cursor = view.pointed >= 0 ? "pointer" : "";
    showTip(view.pointed, event.offsetX, event.offsetY);
    showDetail();
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("dragging");
    if (drag && !drag.moved) keep(pick(event.offsetX, event.offsetY));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => showTip(-1));
  canvas.addEventListener("dblclick", (event) => zoom(0.25, picture.t(event.offsetX)));
  const overview = canvases.overview;
  const aim = (event) => {
    const part = (event.offsetX - GUTTER) / (overview.clientWidth - GUTTER - RIGHT), span = view.to - view.from;
    const t = limits.from + part * (limits.to - limits.from);
    show(t - span / 2, t + span / 2);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); aim(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) aim(event); });
}

const KEYS = {
  n: () => nextBreach(1), p: () => nextBreach(-1), f: showWhole, "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
  ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1.4), ",": () => step(-1), ".": () => step(1),
  Escape: () => { view.kept = -1; view.breach = null; history.replaceState(null, "", location.pathname + location.search); changed(); },
};

function followKeys() {
  document.addEventListener("keydown", (event) => {
    const isArrow = event.key.startsWith("Arrow");
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key] || (isArrow && document.activeElement !== canvases.timeline && document.activeElement !== document.body)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  const tools = { in: () => zoom(0.5), out: () => zoom(2), fit: showWhole };
  for (const button of document.querySelectorAll("[data-do]")) button.onclick = tools[button.dataset.do];
  $("listing").addEventListener("toggle", showListing);
  $("copy")?.addEventListener("click", () => navigator.clipboard?.writeText($("command").textContent).then(() => ($("copy").textContent = "copied")));
}

function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  $("theme").onclick = () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; readColours(); changed(); };
  dark.addEventListener("change", () => { readColours(); changed(); });
}

async function start() {
  const began = performance.now();
  readColours();
  await unpack();
  buildLegend();
  buildWitnesses();
  followEventButtons();
  sizeLanes();
  listeners.push(redraw);
  followPointer();
  followKeys();
  followTheme();
  addEventListener("resize", () => { sizeLanes(); changed(); });
  addEventListener("hashchange", followHash);
  followHash();
  changed();
  document.body.dataset.readyMs = (performance.now() - began).toFixed(0);
}

start().catch((trouble) => {
  $("detail").textContent = `The picture could not be drawn: ${trouble}`;
  throw trouble;
});
