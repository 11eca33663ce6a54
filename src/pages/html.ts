/** Text that is HTML already and goes into a page as it is. */
export class Html {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** What may stand in a page: HTML, or text, which is escaped. */
type Part = Html | string | readonly Html[];

function toText(part: Part): string {
  if (part instanceof Html) return part.toString();
  if (typeof part === "string") return part.replace(/[&<>"']/g, (sign) => entities[sign] ?? "");
  return part.map(String).join("");
}

/** Puts HTML together; everything that is not HTML already is escaped. */
export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  return new Html(
    strings.map((text, at) => text + (at < parts.length ? toText(parts[at] ?? "") : "")).join(""),
  );
}

/** Nothing, where something might stand. */
export const nothing = new Html("");

/** A moment to the minute, in UTC. @param seconds since the epoch */
export function dateOf(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}
