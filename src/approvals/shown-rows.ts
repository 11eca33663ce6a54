/** The rows of a Preview, as an approver is shown them. */
import { z } from "zod";
import { keepSpelling } from "../json/exact-numbers.ts";
import type { NoPreview } from "./preview.ts";

/** Rows as a Preview tells them, each as its JSON text. */
export interface ShownRows {
  readonly affected: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
  /** The digest of all of them. */
  readonly digest: string;
}

const rows = z.array(z.unknown().transform((row) => JSON.stringify(row)));
const shownShape = z.object({
  affected: z.unknown().transform((count) => Number(JSON.stringify(count))),
  before: rows,
  after: rows,
  digest: z.string(),
});
const refusedShape = z.object({ message: z.string() });

/** Reads what the engine has answered to a Preview. @throws Error for what is no such answer */
export function readShownRows(status: number, text: string): ShownRows | NoPreview {
  const answer: unknown = JSON.parse(text, keepSpelling);
  if (status === 200) return shownShape.parse(answer);
  return { reason: `the database refuses it: ${refusedShape.parse(answer).message}` };
}

/** Text that holds JSON, with what would not be seen as it is in its escaped form. */
export function visibleJson(json: string): string {
  return json.replace(/[^\P{C}\n\t]|[\u2028\u2029]/gu, (character) =>
    Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
      .map((code) => `\\u${code.toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
