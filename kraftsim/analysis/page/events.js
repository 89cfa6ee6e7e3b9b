// The events on their swimlanes: as a density if there are many, else as dots with arrows and labels.
// Zoomed out: per slot of a few pixels and lane a stack of families, its height the logarithm of the number of events.
function drawDensity(pen, first, end, laneHeight) {
  const lanes = facts.lanes.length, kinds = familyNames.length, slots = Math.ceil((picture.width - GUTTER - RIGHT) / SLOT);
  const bins = new Float32Array(slots * lanes * kinds), totals = new Float32Array(slots * lanes);
  const scale = slots / (view.to - view.from);
  let most = 1;
  for (let i = first; i < end; i++) {
    const family = kindOf(i).family;
    if (view.hidden.has(family)) continue;
    const bin = data.lane[i] * slots + Math.min(slots - 1, ((data.t[i] - view.from) * scale) | 0);
    bins[bin * kinds + family]++;
    if (++totals[bin] > most) most = totals[bin];
  }
  for (let family = 0; family < kinds; family++) {
    pen.fillStyle = colours[familyNames[family]];
    for (let bin = 0; bin < totals.length; bin++) {
      const here = bins[bin * kinds + family];
      if (!here) continue;
      const lane = (bin / slots) | 0, full = Math.max(3, (Math.log1p(totals[bin]) / Math.log1p(most)) * (laneHeight - 10));
      let below = 0;
      for (let other = 0; other < family; other++) below += bins[bin * kinds + other];
      const base = TOP + laneHeight * (lane + 1) - 4 - (full * below) / totals[bin];
      const height = (full * here) / totals[bin];
      pen.fillRect(GUTTER + (bin - lane * slots) * SLOT, base - height, SLOT - 0.6, height);
    }
  }
}

// Zoomed in: a dot for each event; events at the same pixel of a lane are stacked. Frames are at the lower edge of their lane.
function drawEvents(pen, first, end, laneHeight, middle) {
  const visible = end - first, radius = visible < 400 ? 4.2 : visible < 1600 ? 3.2 : 2.3;
  const connections = familyNames.indexOf("connections");
  const last = new Map();
  for (let i = first; i < end; i++) {
    const family = kindOf(i).family;
    if (view.hidden.has(family)) continue;
    const rail = data.lane[i] * 2 + (family === connections ? 1 : 0);
    const x = picture.x(data.t[i]), before = last.get(rail);
    const level = before && x - before.x < radius * 1.6 ? before.level + 1 : 0;
    last.set(rail, { x: level ? before.x : x, level });
    const spread = Math.ceil(level / 2) * radius * 1.7 * (level % 2 ? -1 : 1);
    const y = middle(data.lane[i]) + (family === connections ? laneHeight * 0.36 : Math.max(-laneHeight * 0.4, Math.min(laneHeight * 0.28, spread)));
    picture.places.push({ i, x, y });
  }
  drawArrows(pen, visible, middle);
  for (const { i, x, y } of picture.places) {
    const kind = kindOf(i);
    pen.fillStyle = colours[familyNames[kind.family]];
    pen.beginPath();
    const size = kind.family === connections ? radius * 0.62 : radius;
    if (kind.bad) {
      pen.moveTo(x, y - size * 1.35);
      pen.lineTo(x + size * 1.35, y);
      pen.lineTo(x, y + size * 1.35);
      pen.lineTo(x - size * 1.35, y);
    } else pen.arc(x, y, size, 0, 7);
    pen.fill();
    if (visible < 1600) {
      pen.strokeStyle = colours.ground;
      pen.lineWidth = 1;
      pen.stroke();
    }
  }
  if (visible < LABELS_TO) drawLabels(pen, laneHeight, middle);
}

function drawArrows(pen, visible, middle) {
  const placed = new Map(picture.places.map((place) => [place.i, place]));
  const chosen = view.kept;
  for (const { i, x, y } of picture.places) {
    const cause = data.cause[i];
    if (cause < 0 || view.hidden.has(kindOf(cause).family) || data.lane[cause] === data.lane[i]) continue;
    const from = placed.get(cause) ?? { x: picture.x(data.t[cause]), y: middle(data.lane[cause]) };
    const isChosen = i === chosen || cause === chosen;
    pen.strokeStyle = colours[familyNames[kindOf(cause).family]];
    pen.globalAlpha = isChosen ? 1 : visible > 2000 ? 0.13 : visible > ARROWHEADS_TO ? 0.25 : 0.55;
    pen.lineWidth = isChosen ? 2 : 1;
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(x, y);
    pen.stroke();
    if (visible > ARROWHEADS_TO && !isChosen) continue;
    const angle = Math.atan2(y - from.y, x - from.x), tipX = x - 4 * Math.cos(angle), tipY = y - 4 * Math.sin(angle);
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath();
    pen.moveTo(tipX, tipY);
    pen.lineTo(tipX - 7 * Math.cos(angle - 0.38), tipY - 7 * Math.sin(angle - 0.38));
    pen.lineTo(tipX - 7 * Math.cos(angle + 0.38), tipY - 7 * Math.sin(angle + 0.38));
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function drawLabels(pen, laneHeight, middle) {
  pen.font = "11px ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
  const ends = new Map();
  const connections = familyNames.indexOf("connections");
  const rows = [0, -0.3, 0.19, -0.16].map((part) => part * laneHeight), lowerRow = [0.36 * laneHeight];
  for (const { i, x, y } of picture.places) {  // labels must not overlap dots, either
    for (const row of [...rows, ...lowerRow]) {
      if (Math.abs(middle(data.lane[i]) + row - y) > 8) continue;
      const key = data.lane[i] * 100 + row;
      ends.set(key, [...(ends.get(key) ?? []), [x - 5, x + 5]]);
    }
  }
  const important = (i) => (view.breach?.events.includes(i) || i === view.kept ? 0 : kindOf(i).bad ? 1 : kindOf(i).family === connections ? 3 : 2);
  for (const { i, x } of [...picture.places].sort((a, b) => important(a.i) - important(b.i) || a.x - b.x)) {
    const text = labelOf(i), width = pen.measureText(text).width, isFrame = kindOf(i).family === connections;
    for (const row of isFrame ? lowerRow : rows) {
      const taken = ends.get(data.lane[i] * 100 + row) ?? [];
      const from = x + 7, to = from + width + 8;
      if (taken.some(([begin, end]) => from < end && to > begin)) continue;
      taken.push([from, to]);
      ends.set(data.lane[i] * 100 + row, taken);
      const y = middle(data.lane[i]) + row;
      pen.lineWidth = 3;
      pen.strokeStyle = colours.ground;
      pen.globalAlpha = 0.85;
      pen.strokeText(text, from, y);
      pen.globalAlpha = 1;
      pen.fillStyle = familyNames[kindOf(i).family] === "faults" ? colours.faults : kindOf(i).bad ? colours.warn : isFrame ? colours.quiet : colours.ink;
      pen.fillText(text, from, y);
      break;
    }
  }
  pen.lineWidth = 1;
}
