import { randomUUID } from "node:crypto";
import { closeSync, createReadStream, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { RowCounts, Spool, SpooledAnswer } from "./spool.ts";
import type { Answer } from "./store.ts";

/**
 * Opens an empty file that nobody else can open, since it loses its name at once; the system
 * takes it back with its descriptor. @throws what the file system throws
 */
export function openUnnamedFile(): number {
  const path = join(tmpdir(), `.gatehouse-answer-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  rmSync(path);
  return file;
}

/** An answer that is a value in memory. */
export function jsonAnswer(value: object): Answer {
  return answerInMemory(Buffer.from(JSON.stringify(value)), {});
}

/**
 * An answer that was spooled, in the file at `path` if it is long. The file stays readable when
 * its name is removed afterwards. @throws what the file system throws
 */
export function openAnswer(spooled: SpooledAnswer, path: string): Answer {
  if (spooled.kind === "memory") return answerInMemory(spooled.bytes, spooled.counts);
  return new AnswerInFile(openSync(path, "r"), spooled);
}

/** The answer that this process spooled; the spool gives its file away and needs no closing. */
export function takeAnswer(spool: Spool): Answer {
  const spooled = spool.finish();
  if (spooled.kind === "memory") return answerInMemory(spooled.bytes, spooled.counts);
  const file = spool.takeFile();
  if (file === undefined) throw new Error("A spool was taken twice");
  return new AnswerInFile(file, spooled);
}

function answerInMemory(bytes: Uint8Array, counts: RowCounts): Answer {
  return {
    counts,
    byteLength: bytes.byteLength,
    read: () => bytes,
    dispose() {},
  };
}

/** An answer in a file, which the stream owns once it is taken. */
class AnswerInFile implements Answer {
  readonly byteLength: number;
  readonly counts: RowCounts;
  #file: number | undefined;

  constructor(file: number, { byteLength, counts }: { byteLength: number; counts: RowCounts }) {
    this.#file = file;
    this.byteLength = byteLength;
    this.counts = counts;
  }

  read(): Readable {
    const file = this.#file;
    if (file === undefined) throw new Error("An answer was read twice");
    this.#file = undefined;
    return createReadStream("", { fd: file, start: 0 });
  }

  dispose(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}
