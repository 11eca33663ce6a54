/** Counts the queries and denials of the last hours in the audit files, with bounded work. */
import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { findLines, parseLine, type ReadLine, wholeLines } from "./audit-filter.ts";
import {
  auditFilesOf,
  CHUNK_BYTES,
  isCompressed,
  mayShow,
  offsetsOf,
  type ShownDatabases,
  unpacked,
} from "./audit-search.ts";

const HOUR_MS = 3_600_000;
/**
 * If more bytes than this are in the requested hours, only `SAMPLE_BYTES` of each hour are read.
 */
const READ_WHOLE_BYTES = 48 * 1024 * 1024;
const SAMPLE_BYTES = 2 * 1024 * 1024;
/** At most this many users, and as many tables, are counted by name. */
const MOST_NAMES = 10_000;

export interface SummaryQuestion {
  readonly file: string;
  /** Epoch milliseconds at which the first hour begins. */
  readonly since: number;
  readonly hours: number;
  readonly shown: ShownDatabases | undefined;
  /** Maximum number of users, and of tables, in the summary. */
  readonly top: number;
  /** Milliseconds after which counting stops. */
  readonly patience: number;
}

export interface HourCount {
  readonly queries: number;
  readonly denials: number;
}

export interface DeniedName {
  readonly name: string;
  readonly count: number;
  /** The newest denied line. */
  readonly last: ReadLine;
}

export interface AuditSummary {
  readonly hours: readonly HourCount[];
  readonly users: readonly DeniedName[];
  /** Named `database.table`. */
  readonly tables: readonly DeniedName[];
  /** True if the numbers are estimated from a sample. */
  readonly isSampled: boolean;
  /** True if time ran out before all files were read. */
  readonly isPartial: boolean;
}

type Take = (line: Buffer, offset: number) => void;

class Summary {
  readonly #question: SummaryQuestion;
  readonly #isShown: (line: ReadLine) => boolean;
  readonly #deadline: number;
  readonly #hours: { queries: number; denials: number }[];
  readonly #users = new Map<string, DeniedName>();
  readonly #tables = new Map<string, DeniedName>();
  #isSampled = false;

  constructor(question: SummaryQuestion) {
    this.#question = question;
    this.#isShown = mayShow(question.shown);
    this.#deadline = performance.now() + question.patience;
    this.#hours = Array.from({ length: question.hours }, () => ({ queries: 0, denials: 0 }));
  }

  get #isLate(): boolean {
    return performance.now() > this.#deadline;
  }

  #hourOf({ time }: ReadLine): number {
    return Math.floor((Date.parse(time) - this.#question.since) / HOUR_MS);
  }

  #count(line: ReadLine, weight: number): void {
    const { user = "", decision, reason, operations } = line;
    const hour = this.#hours[this.#hourOf(line)];
    const isQuery = decision !== undefined && operations.length > 0;
    if (hour === undefined || !isQuery || !this.#isShown(line)) return;
    hour.queries += weight;
    // A query that waits for approval is held back, not denied.
    if (decision !== "deny" || reason === "approval_required") return;
    hour.denials += weight;
    this.#note(this.#users, user, line, weight);
    const names = operations.flatMap(({ database, tables }) =>
      tables.map((table) => `${database}.${table}`),
    );
    for (const name of new Set(names)) this.#note(this.#tables, name, line, weight);
  }

  #note(names: Map<string, DeniedName>, name: string, line: ReadLine, weight: number): void {
    const known = names.get(name);
    if (name === "" || (known === undefined && names.size >= MOST_NAMES)) return;
    const last = known === undefined || known.last.time < line.time ? line : known.last;
    names.set(name, { name, count: (known?.count ?? 0) + weight, last });
  }

  /** @returns false if time ran out */
  async #read(bytes: AsyncIterable<Buffer>, take: Take): Promise<boolean> {
    for await (const piece of wholeLines(bytes)) {
      findLines(piece, ['"decision"'], (line) =>
        take(line, piece.start + line.byteOffset - piece.lines.byteOffset),
      );
      if (this.#isLate) return false;
    }
    return true;
  }

  /** Reads part of one hour and weights each line for those that were not read. */
  async #sample(file: string, handle: FileHandle, hour: number): Promise<boolean> {
    const begin = this.#question.since + hour * HOUR_MS;
    const [{ low: start }, { low: next }] = [
      await offsetsOf(handle, begin),
      await offsetsOf(handle, begin + HOUR_MS),
    ];
    const found: ReadLine[] = [];
    let [first, last] = [Number.NaN, 0];
    const { size } = await handle.stat();
    // `start` may be up to one chunk before the hour begins.
    const end = start + CHUNK_BYTES + SAMPLE_BYTES - 1;
    let isWhole = end >= size;
    const bytes = createReadStream(file, { highWaterMark: CHUNK_BYTES, start, end });
    const isDone = await this.#read(bytes, (text, offset) => {
      const line = parseLine(text);
      if (line === undefined) return;
      isWhole ||= this.#hourOf(line) > hour;
      if (this.#hourOf(line) !== hour) return;
      if (Number.isNaN(first)) first = offset;
      last = offset + text.length;
      found.push(line);
    });
    const weight = isWhole ? 1 : Math.max(1, (next - start - first) / (last - first)) || 1;
    this.#isSampled ||= weight > 1;
    for (const line of found) this.#count(line, weight);
    return isDone;
  }

  /** @returns false if time ran out */
  async #readFile(file: string): Promise<boolean> {
    const { since, hours } = this.#question;
    const countAll: Take = (text) => {
      const line = parseLine(text);
      if (line !== undefined) this.#count(line, 1);
    };
    if (isCompressed(file)) return this.#read(unpacked(file), countAll);
    await using handle = await open(file);
    const { low: start } = await offsetsOf(handle, since);
    const { size } = await handle.stat();
    if (size - start <= READ_WHOLE_BYTES) {
      const bytes = createReadStream(file, { highWaterMark: CHUNK_BYTES, start });
      return this.#read(bytes, countAll);
    }
    for (let hour = hours - 1; hour >= 0; hour--) {
      if (!(await this.#sample(file, handle, hour))) return false;
    }
    return true;
  }

  #top(names: Map<string, DeniedName>): DeniedName[] {
    const sorted = [...names.values()].sort(
      (one, other) => other.count - one.count || (one.name < other.name ? -1 : 1),
    );
    return sorted
      .slice(0, this.#question.top)
      .map((one) => ({ ...one, count: Math.round(one.count) }));
  }

  async run(): Promise<AuditSummary> {
    const { file, since } = this.#question;
    let isPartial = false;
    for (const one of (await auditFilesOf(file, since)).toReversed()) {
      isPartial = this.#isLate || !(await this.#readFile(one));
      if (isPartial) break;
    }
    return {
      hours: this.#hours.map(({ queries, denials }) => ({
        queries: Math.round(queries),
        denials: Math.round(denials),
      })),
      users: this.#top(this.#users),
      tables: this.#top(this.#tables),
      isSampled: this.#isSampled,
      isPartial,
    };
  }
}

/** Counts queries and denials per hour. @throws the file system's error */
export function summarizeAudit(question: SummaryQuestion): Promise<AuditSummary> {
  return new Summary(question).run();
}
