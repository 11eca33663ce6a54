import type { Summary } from "./statistics.ts";

interface Bar {
  readonly name: string;
  readonly value: Summary;
  readonly isOurs: boolean;
}

const ROW = 26;
const LEFT = 300;
const WIDTH = 420;
const RIGHT = 70;
const TOP = 44;

/** Escapes text for SVG. */
export function escapeText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** Horizontal bars as SVG: medians with the range of all rounds. */
export function barPlot(title: string, unit: string, bars: readonly Bar[]): string {
  const scale = WIDTH / Math.max(...bars.map(({ value }) => value.most));
  const height = TOP + bars.length * ROW + 10;
  const rows = bars.map(({ name, value: { median, least, most }, isOurs }, at) => {
    const y = TOP + at * ROW;
    const middle = y + ROW / 2 - 3;
    const [from, to] = [LEFT + least * scale, LEFT + most * scale].map((x) => x.toFixed(1));
    const width = (median * scale).toFixed(1);
    return [
      `<text x="${LEFT - 8}" y="${middle + 4}" text-anchor="end">${escapeText(name)}</text>`,
      `<rect x="${LEFT}" y="${y}" width="${width}" height="${ROW - 6}" fill="${isOurs ? "#1a7f5a" : "#9aa5b1"}"/>`,
      `<path d="M${from} ${middle}H${to}" stroke="#222" stroke-width="1.5"/>`,
      `<text x="${LEFT + most * scale + 6}" y="${middle + 4}">${median.toFixed(0)}</text>`,
    ].join("\n");
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${LEFT + WIDTH + RIGHT}" height="${height}" font-family="sans-serif" font-size="12">
<title>${escapeText(title)}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="18" font-weight="bold">${escapeText(title)}</text>
<text x="8" y="34" fill="#555">${escapeText(unit)}</text>
${rows.join("\n")}
</svg>
`;
}
