import { escapeText } from "./plot.ts";

/** A chart with one value per size, smallest first. */
export interface Panel {
  readonly title: string;
  /** True for a line over a logarithmic axis, false for bars. */
  readonly isLog: boolean;
  readonly points: readonly Point[];
}

interface Point {
  readonly name: string;
  readonly at: number;
  readonly value: number;
}

const COLUMNS = 3;
const WIDTH = 290;
const HEIGHT = 200;
const HEAD = 30;
/** The drawing area of a panel, below its title. */
const TOP = 40;
const BOTTOM = HEIGHT - 30;
const LEFT = 24;
const SPAN = WIDTH - 2 * LEFT - 10;
const BAR = 32;
const color = "#1a7f5a";

function valueText(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

function curve(points: readonly Point[]): string[] {
  const decades = Math.max(1, Math.log10(Math.max(...points.map(({ at }) => at))));
  const top = Math.max(...points.map(({ value }) => value));
  const x = (at: number) => (LEFT + (Math.log10(at) / decades) * SPAN).toFixed(1);
  const y = (value: number) => BOTTOM - (value / top) * (BOTTOM - TOP - 10);
  const ticks = Array.from({ length: Math.floor(decades + 0.01) + 1 }, (_, power) => 10 ** power);
  const line = points.map(({ at, value }) => `${x(at)},${y(value).toFixed(1)}`).join(" ");
  return [
    `<path d="M${LEFT} ${BOTTOM}h${SPAN}" stroke="#999"/>`,
    ...ticks.map(
      (at) =>
        `<path d="M${x(at)} ${TOP}V${BOTTOM}" stroke="#e3e3e3"/><text x="${x(at)}" y="${BOTTOM + 15}" text-anchor="middle" fill="#555">${at >= 1e6 ? `${at / 1e6}M` : at >= 1e3 ? `${at / 1e3}k` : at}</text>`,
    ),
    `<polyline points="${line}" fill="none" stroke="${color}" stroke-width="2"/>`,
    ...points.map(({ at, value }) => {
      const height = y(value);
      return `<circle cx="${x(at)}" cy="${height.toFixed(1)}" r="3" fill="${color}"/><text x="${x(at)}" y="${(height - 7).toFixed(1)}" text-anchor="middle">${valueText(value)}</text>`;
    }),
  ];
}

function bars(points: readonly Point[]): string[] {
  const top = Math.max(...points.map(({ value }) => value));
  return points.flatMap(({ name, value }, index) => {
    const y = TOP + index * BAR;
    const width = ((value / top) * (SPAN - 40)).toFixed(1);
    return [
      `<text x="${LEFT}" y="${y}" fill="#555">${escapeText(name)}</text>`,
      `<rect x="${LEFT}" y="${y + 4}" width="${width}" height="12" fill="${color}"/>`,
      `<text x="${LEFT + Number(width) + 5}" y="${y + 14}">${valueText(value)}</text>`,
    ];
  });
}

/** Panels in rows of three as SVG. Each scale starts at zero. */
export function panelPlot(title: string, panels: readonly Panel[]): string {
  const drawn = panels.map(({ title, isLog, points }, index) => {
    const x = (index % COLUMNS) * WIDTH;
    const y = HEAD + Math.floor(index / COLUMNS) * HEIGHT;
    const lines = isLog ? curve(points) : bars(points);
    return `<g transform="translate(${x} ${y})">
<text x="${LEFT}" y="14" font-weight="bold">${escapeText(title)}</text>
${lines.join("\n")}
</g>`;
  });
  const height = HEAD + Math.ceil(panels.length / COLUMNS) * HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${COLUMNS * WIDTH}" height="${height}" font-family="sans-serif" font-size="11">
<title>${escapeText(title)}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="${LEFT}" y="18" font-weight="bold" font-size="13">${escapeText(title)}</text>
${drawn.join("\n")}
</svg>
`;
}
