import { type FileHandle, open } from "node:fs/promises";
import { placeName } from "../query/names.ts";
import { hasOutcome, parseLine, type ReadLine } from "./audit-filter.ts";
import {
  CHUNK_BYTES,
  findAuditFiles,
  findOffsets,
  isCompressed,
  linesIn,
  type Piece,
  piecesFrom,
  type VisibleDatabases,
  visibilityFilter,
} from "./audit-search.ts";

const HOUR_MS = 3_600_000;
/** Of a larger file, only `SAMPLE_BYTES` of each hour are read. */
const WHOLE_FILE_BYTES = 48 * 1024 * 1024;
const SAMPLE_BYTES = 2 * 1024 * 1024;
const MAX_NAMES = 10_000;

export interface SummaryQuestion {
  readonly file: string;
  /** Epoch milliseconds at which the first hour begins. */
  readonly since: number;
  readonly hours: number;
  readonly visible: VisibleDatabases | undefined;
  /** Maximum number of users, and of tables, in the summary. */
  readonly top: number;
  readonly timeoutMs: number;
}

export interface HourCount {
  readonly queries: number;
  readonly denials: number;
}

export interface DeniedName {
  readonly name: string;
  readonly count: number;
  readonly last: ReadLine;
}

export type AuditSummary = Awaited<ReturnType<typeof summarizeAudit>>;

/** Counts queries and denials per hour with bounded work. @throws the file system's error */
export async function summarizeAudit(question: SummaryQuestion) {
  const { file, since, top, timeoutMs } = question;
  const isVisible = visibilityFilter(question.visible);
  const deadline = performance.now() + timeoutMs;
  const hours = Array.from({ length: question.hours }, () => ({ queries: 0, denials: 0 }));
  const users = new Map<string, DeniedName>();
  const tables = new Map<string, DeniedName>();
  let isSampled = false;

  const isLate = () => performance.now() > deadline;
  const hourOf = ({ time }: ReadLine) => Math.floor((Date.parse(time) - since) / HOUR_MS);

  function count(line: ReadLine, weight: number): void {
    const { user = "", decision, operations } = line;
    const hour = hours[hourOf(line)];
    const isQuery = decision !== undefined && operations.length > 0;
    if (hour === undefined || !isQuery || !isVisible(line)) return;
    hour.queries += weight;
    if (!hasOutcome(line, "denied")) return;
    hour.denials += weight;
    note(users, user, line, weight);
    const names = operations.flatMap(({ database, tables }) =>
      tables.map((table) => placeName(database, table)),
    );
    for (const name of new Set(names)) note(tables, name, line, weight);
  }

  /** @returns false if time ran out */
  async function read(
    pieces: AsyncIterable<Piece>,
    take: (line: ReadLine, begin: number, end: number) => void,
  ): Promise<boolean> {
    for await (const piece of pieces) {
      for (const { bytes, offset } of linesIn(piece, ['"decision"'])) {
        const line = parseLine(bytes);
        if (line !== undefined) take(line, offset, offset + bytes.length);
      }
      if (isLate()) return false;
    }
    return true;
  }

  /** Reads part of one hour and weights each line for those that were not read. */
  async function sample(file: string, handle: FileHandle, hour: number): Promise<boolean> {
    const begin = since + hour * HOUR_MS;
    const { low: start } = await findOffsets(handle, begin);
    const { low: next } = await findOffsets(handle, begin + HOUR_MS);
    const found: ReadLine[] = [];
    let first = Number.NaN;
    let last = 0;
    // `start` may be up to one chunk before the hour begins.
    const end = start + CHUNK_BYTES + SAMPLE_BYTES - 1;
    let isWhole = end >= (await handle.stat()).size;
    const isDone = await read(piecesFrom(file, start, end), (line, lineBegin, lineEnd) => {
      isWhole ||= hourOf(line) > hour;
      if (hourOf(line) !== hour) return;
      if (Number.isNaN(first)) first = lineBegin;
      last = lineEnd;
      found.push(line);
    });
    const weight = isWhole ? 1 : Math.max(1, (next - first) / (last - first)) || 1;
    isSampled ||= weight > 1;
    for (const line of found) count(line, weight);
    return isDone;
  }

  /** @returns false if time ran out */
  async function readFile(file: string): Promise<boolean> {
    const countWhole = (line: ReadLine) => count(line, 1);
    await using handle = await open(file);
    const start = isCompressed(file) ? 0 : (await findOffsets(handle, since)).low;
    const { size } = await handle.stat();
    if (isCompressed(file) || size - start <= WHOLE_FILE_BYTES) {
      return read(piecesFrom(file, start), countWhole);
    }
    for (let hour = hours.length - 1; hour >= 0; hour--) {
      if (!(await sample(file, handle, hour))) return false;
    }
    return true;
  }

  function mostDenied(names: ReadonlyMap<string, DeniedName>): DeniedName[] {
    const sorted = [...names.values()].sort(
      (one, other) => other.count - one.count || (one.name < other.name ? -1 : 1),
    );
    return sorted.slice(0, top).map((one) => ({ ...one, count: Math.round(one.count) }));
  }

  let isPartial = false;
  for (const one of (await findAuditFiles(file, since)).toReversed()) {
    isPartial = isLate() || !(await readFile(one));
    if (isPartial) break;
  }
  return {
    hours: hours.map(({ queries, denials }) => ({
      queries: Math.round(queries),
      denials: Math.round(denials),
    })),
    users: mostDenied(users),
    tables: mostDenied(tables),
    /** True if the numbers are estimated from a sample. */
    isSampled,
    /** True if time ran out before all files were read. */
    isPartial,
  };
}

function note(names: Map<string, DeniedName>, name: string, line: ReadLine, weight: number): void {
  const known = names.get(name);
  if (name === "" || (known === undefined && names.size >= MAX_NAMES)) return;
  const last = known === undefined || known.last.time < line.time ? line : known.last;
  names.set(name, { name, count: (known?.count ?? 0) + weight, last });
}
