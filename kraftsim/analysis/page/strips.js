// The two strips below the timeline: rates in the window, and the overview of the whole run.
const RATES = [
  { name: "acks", kinds: ["RecordAcknowledged"], family: "clients" },
  { name: "appends", kinds: ["BatchAppended"], family: "log" },
  { name: "producer ids", kinds: ["ProducerIdReturned"], family: "ids" },
];
let crowd = null;

function drawRates() {
  const [pen, width, height] = prepare(canvases.rates);
  const bins = 120, span = view.to - view.from;
  const series = RATES.map((rate) => ({ ...rate, numbers: rate.kinds.map((name) => data.kinds.findIndex((kind) => kind.name === name)), bins: new Float64Array(bins) }));
  const byKind = data.kinds.map((_, kind) => series.filter((each) => each.numbers.includes(kind)));
  for (let i = firstFrom(view.from), end = firstFrom(view.to + 1); i < end; i++) {
    for (const each of byKind[data.kind[i]]) each.bins[Math.min(bins - 1, (((data.t[i] - view.from) / span) * bins) | 0)]++;
  }
  const drawn = series.filter((each) => each.numbers.some((kind) => kind >= 0));
  const row = height / Math.max(1, drawn.length);
  pen.font = "11px ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
  drawn.forEach((each, number) => {
    const most = Math.max(...each.bins), base = row * (number + 1) - 2, room = width - GUTTER - RIGHT;
    pen.fillStyle = colours.line;
    pen.fillRect(GUTTER, base, room, 1);
    pen.fillStyle = colours[each.family];
    pen.globalAlpha = 0.75;
    each.bins.forEach((value, bin) => {
      const tall = most ? (value / most) * (row - 6) : 0;
      if (value) pen.fillRect(GUTTER + (bin * room) / bins, base - Math.max(1, tall), room / bins - 0.8, Math.max(1, tall));
    });
    pen.globalAlpha = 1;
    pen.fillStyle = colours.quiet;
    pen.fillText(each.name, 12, base - row / 2 - 1);
    const peak = most / ((span / bins) / 1e9);
    pen.textAlign = "right";
    pen.fillText(`${peak >= 9.5 ? Math.round(peak).toLocaleString("en") : peak.toFixed(1)}/s`, GUTTER - 8, base - row / 2 - 1);
    pen.textAlign = "left";
  });
}

function crowdOf(pixels) {
  if (crowd?.length === pixels) return crowd;
  crowd = new Float32Array(pixels);
  const scale = (pixels - 1) / (limits.to - limits.from);
  for (let i = 0; i < count; i++) crowd[((data.t[i] - limits.from) * scale) | 0]++;
  return crowd;
}

function drawOverview() {
  const [pen, width, height] = prepare(canvases.overview);
  const at = (t) => GUTTER + ((t - limits.from) / (limits.to - limits.from)) * (width - GUTTER - RIGHT);
  const pixels = Math.max(2, Math.ceil(width - GUTTER - RIGHT)), bars = crowdOf(pixels);
  const most = Math.sqrt(Math.max(1, ...bars));
  pen.fillStyle = colours.quiet;
  pen.font = "11px ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
  pen.fillText("whole run", 12, height / 2);
  pen.globalAlpha = 0.55;
  bars.forEach((value, x) => {
    const tall = (Math.sqrt(value) / most) * (height - 12);
    if (value) pen.fillRect(GUTTER + x, height - 2 - tall, 1, tall);
  });
  pen.globalAlpha = 1;
  for (const band of facts.bands) {
    pen.fillStyle = colours["fault-soft"];
    pen.fillRect(at(band.begin_ns), 0, Math.max(1, at(band.end_ns) - at(band.begin_ns)), height);
    pen.fillStyle = colours.fault;
    pen.fillRect(at(band.begin_ns), 0, 1, 5);
  }
  for (const breach of breaches) {
    for (const i of breach.events) {
      pen.fillStyle = colours.bad;
      pen.fillRect(at(data.t[i]) - 1, 0, 2, height);
    }
  }
  const from = at(view.from), to = at(view.to);
  pen.fillStyle = colours.accent;
  pen.globalAlpha = 0.12;
  pen.fillRect(from, 0, Math.max(3, to - from), height);
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(from, 1, Math.max(3, to - from), height - 2);
}
