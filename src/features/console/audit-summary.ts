import { type FileHandle, open } from "node:fs/promises";
import { hasOutcome, parseLine, type ReadLine } from "../../core/observe/audit-filter.ts";
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
} from "../../core/observe/audit-search.ts";
import { placeName } from "../../core/query/names.ts";

/** Of a larger file, only `SAMPLE_BYTES` of each period are read. */
const WHOLE_FILE_BYTES = 48 * 1024 * 1024;
const SAMPLE_BYTES = 2 * 1024 * 1024;
const MAX_NAMES = 10_000;

export interface SummaryQuestion {
  readonly file: string;
  /** Epoch milliseconds, ascending, at which a period begins, and at which the last one ends. */
  readonly edges: readonly number[];
  readonly visible: VisibleDatabases | undefined;
  /** Maximum number of names in each list of the summary. */
  readonly top: number;
  readonly timeoutMs: number;
}

/** Milliseconds that half of the allowed queries took at most, and 95 percent of them. */
interface Latency {
  readonly p50: number | undefined;
  readonly p95: number | undefined;
}

export interface PeriodCount extends Latency {
  readonly queries: number;
  readonly denials: number;
}

export interface NameCount {
  readonly name: string;
  readonly queries: number;
  readonly denials: number;
  /** Undefined if nothing was denied. */
  readonly lastDenial: ReadLine | undefined;
}

interface TopNames {
  readonly busiest: readonly NameCount[];
  readonly denied: readonly NameCount[];
}

export interface AuditSummary extends Latency {
  readonly periods: readonly PeriodCount[];
  readonly users: TopNames;
  readonly tables: TopNames;
  /** True if the numbers are estimated from a sample. */
  readonly isSampled: boolean;
  /** True if time ran out before all files were read. */
  readonly isPartial: boolean;
}

/** From 1/8 ms to more than an hour in steps of 9 percent. */
const STEPS_PER_DOUBLING = 8;
const LEAST_MS = 1 / 8;
const STEPS = 200;

/** Counts durations in a bounded number of steps. */
class LatencyCounts {
  readonly #counts = new Float64Array(STEPS);

  add(ms: number, weight: number): void {
    const step = Math.floor(STEPS_PER_DOUBLING * Math.log2(Math.max(1, ms / LEAST_MS)));
    const at = Math.min(step, STEPS - 1);
    this.#counts[at] = (this.#counts[at] ?? 0) + weight;
  }

  /** The middle of the step that contains this part of all durations. */
  #quantile(part: number): number | undefined {
    let left = part * this.#counts.reduce((sum, count) => sum + count, 0);
    if (left === 0) return undefined;
    const step = this.#counts.findIndex((count) => {
      left -= count;
      return left <= 0;
    });
    return LEAST_MS * 2 ** ((step + 0.5) / STEPS_PER_DOUBLING);
  }

  get quantiles(): Latency {
    return { p50: this.#quantile(0.5), p95: this.#quantile(0.95) };
  }
}

/** Counts queries, denials and latency per period with bounded work. @throws the file system's error */
export async function summarizeAudit(question: SummaryQuestion): Promise<AuditSummary> {
  const { file, edges, top, timeoutMs } = question;
  const [since = 0] = edges;
  const isVisible = visibilityFilter(question.visible);
  const deadline = performance.now() + timeoutMs;
  const periods = edges
    .slice(1)
    .map(() => ({ queries: 0, denials: 0, latency: new LatencyCounts() }));
  const latency = new LatencyCounts();
  const users = new Map<string, NameCount>();
  const tables = new Map<string, NameCount>();
  let isSampled = false;

  const isLate = () => performance.now() > deadline;
  const findPeriod = ({ time }: ReadLine) => {
    const moment = Date.parse(time);
    return edges.findLastIndex((edge) => edge <= moment);
  };

  function count(line: ReadLine, weight: number): void {
    const { user = "", decision, operations, ms } = line;
    const period = periods[findPeriod(line)];
    const isLogin = operations[0]?.operation === "login";
    const isQuery = decision !== undefined && operations.length > 0 && !isLogin;
    if (period === undefined || !isQuery || !isVisible(line)) return;
    period.queries += weight;
    if (hasOutcome(line, "denied")) period.denials += weight;
    if (decision === "allow" && ms !== undefined) {
      for (const counts of [period.latency, latency]) counts.add(ms, weight);
    }
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
        const line = parseLine(bytes.toString());
        if (line !== undefined) take(line, offset, offset + bytes.length);
      }
      if (isLate()) return false;
    }
    return true;
  }

  /** Reads part of one period and weights each line for those that were not read. */
  async function sample(file: string, handle: FileHandle, period: number): Promise<boolean> {
    const { low: start } = await findOffsets(handle, edges[period] ?? 0);
    const { low: next } = await findOffsets(handle, edges[period + 1] ?? 0);
    const found: ReadLine[] = [];
    let first = Number.NaN;
    let last = 0;
    // `start` may be up to one chunk before the period begins.
    const end = start + CHUNK_BYTES + SAMPLE_BYTES - 1;
    let isWhole = end >= (await handle.stat()).size;
    const isDone = await read(piecesFrom(file, start, end), (line, lineBegin, lineEnd) => {
      const of = findPeriod(line);
      isWhole ||= of > period;
      if (of !== period) return;
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
    for (let period = periods.length - 1; period >= 0; period--) {
      if (!(await sample(file, handle, period))) return false;
    }
    return true;
  }

  function listTop(names: ReadonlyMap<string, NameCount>): TopNames {
    const most = (key: "queries" | "denials") =>
      [...names.values()]
        .filter((one) => one[key] > 0)
        .sort((one, other) => other[key] - one[key] || (one.name < other.name ? -1 : 1))
        .slice(0, top)
        .map(({ queries, denials, ...one }) => ({
          ...one,
          queries: Math.round(queries),
          denials: Math.round(denials),
        }));
    return { busiest: most("queries"), denied: most("denials") };
  }

  let isPartial = false;
  for (const one of (await findAuditFiles(file, since)).toReversed()) {
    isPartial = isLate() || !(await readFile(one));
    if (isPartial) break;
  }
  return {
    periods: periods.map(({ queries, denials, latency }) => ({
      queries: Math.round(queries),
      denials: Math.round(denials),
      ...latency.quantiles,
    })),
    ...latency.quantiles,
    users: listTop(users),
    tables: listTop(tables),
    isSampled,
    isPartial,
  };
}

function note(names: Map<string, NameCount>, name: string, line: ReadLine, weight: number): void {
  const known = names.get(name);
  if (name === "" || (known === undefined && names.size >= MAX_NAMES)) return;
  const { queries = 0, denials = 0, lastDenial } = known ?? {};
  const isDenied = hasOutcome(line, "denied");
  const isLast = isDenied && (lastDenial === undefined || lastDenial.time < line.time);
  names.set(name, {
    name,
    queries: queries + weight,
    denials: denials + (isDenied ? weight : 0),
    lastDenial: isLast ? line : lastDenial,
  });
}
