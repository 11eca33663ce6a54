import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { outline, type Statement } from "../toml/outline.ts";
import type { TableName } from "./record-tables.ts";
import type { RecordProblem } from "./records.ts";
import { plainBlocks } from "./table-blocks.ts";

/** Something that is wrong in the access file; says nothing of what stands there. */
export interface AccessProblem {
  /** From 1; undefined for what is wrong with the file as a whole. */
  readonly line?: number | undefined;
  readonly reason: string;
}

/** Problems that are told, at most. */
const TOLD = 50;

/** The line of a record that is wrong, or of its key, or of what may not stand at the top. */
function lineAmong(
  statements: readonly Statement[],
  { table, index, key }: RecordProblem,
): number | undefined {
  const isStranger = index === -1;
  const top = isStranger ? key : table;
  let record = -1;
  let line: number | undefined;
  for (const { kind, path, line: at } of statements) {
    if (path[0] !== top) continue;
    if (isStranger) return at;
    if (kind === "array-table" && path.length === 1) record += 1;
    if (record === index && key !== undefined && path[1] === key) return at;
    // What is not written as [[tables]] has no records to count: its first line must do.
    if (record === index || record === -1) line ??= at;
  }
  return line;
}

/** Counts lines up to a place; places rise. */
function* linesBefore(text: string, places: readonly number[]): Steps<Map<number, number>> {
  const lines = new Map<number, number>();
  let [count, from] = [0, 0];
  for (const place of places) {
    for (
      let at = text.indexOf("\n", from);
      at !== -1 && at < place;
      at = text.indexOf("\n", from)
    ) {
      count++;
      from = at + 1;
      if (count % 4096 === 0) yield;
    }
    lines.set(place, count);
  }
  return lines;
}

/** The problems with their lines, in the order of the file. */
export function* locate(
  text: string,
  problems: readonly RecordProblem[],
): Steps<readonly AccessProblem[]> {
  const told = problems.slice(0, TOLD);
  const blocks = yield* plainBlocks(text);
  const found: AccessProblem[] = [];
  if (blocks === undefined) {
    const statements = outline(text);
    for (const problem of told) {
      found.push({ line: lineAmong(statements, problem), reason: problem.reason });
    }
  } else {
    const starts: Record<TableName, number[]> = { users: [], acl: [], boundaries: [] };
    yield* visitEach(blocks, ({ table, start }) => starts[table].push(start));
    const ends = new Map(blocks.map(({ start, end }) => [start, end]));
    const placed = told.map((problem) => ({
      problem,
      start: starts[problem.table][problem.index] ?? 0,
    }));
    const places = placed.map(({ start }) => start).sort((one, other) => one - other);
    const before = yield* linesBefore(text, places);
    for (const { problem, start } of placed) {
      const statements = outline(text.slice(start, ends.get(start)));
      const line = lineAmong(statements, { ...problem, index: 0 }) ?? 1;
      found.push({ line: (before.get(start) ?? 0) + line, reason: problem.reason });
      yield;
    }
  }
  const ordered = found.toSorted((one, other) => (one.line ?? 0) - (other.line ?? 0));
  const more = problems.length - told.length;
  return more === 0 ? ordered : [...ordered, { reason: `and ${more} more problems` }];
}
