/** Where the configuration file is looked for. */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  type Stats,
} from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { isOwn, onlyOwnerWrites, shellQuoted } from "../files/permissions.ts";
import { ConfigurationError } from "./problem.ts";

const fileName = "gateway.toml";
/** A pipe of that name would else keep the start waiting for ever. */
const readWithoutWaiting = constants.O_RDONLY | constants.O_NONBLOCK;
/** Far more than any configuration needs, in bytes. */
const LARGEST_BYTES = 1_048_576;

/** What decides which file is taken. */
export interface SearchOptions {
  /** The command line's `--config`. */
  readonly config?: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  /** The directory that relative paths of the command line and the environment are relative to. */
  readonly cwd: string;
}

/** The file that was found, if any, and the warnings about those that were passed over. */
export interface SearchResult {
  readonly file: string | undefined;
  readonly bytes: Uint8Array;
  readonly warnings: readonly string[];
}

/** The directory of Gatehouse's own files: `$GATEHOUSE_HOME`, else `~/.gatehouse`. Absolute. */
export function serviceDirectoryOf({ env, cwd }: SearchOptions): string {
  if (env.GATEHOUSE_HOME) return resolve(cwd, env.GATEHOUSE_HOME);
  return resolve(cwd, env.HOME || homedir(), ".gatehouse");
}

/** The places that are looked at where no file is named, the first that counts first. Absolute. */
export function unnamedPlaces(options: SearchOptions): readonly [string, string] {
  return [resolve(options.cwd, fileName), join(serviceDirectoryOf(options), fileName)];
}

/**
 * Reads the first of: `--config`, `$GATEHOUSE_CONFIG`, `./gateway.toml` if it is safe to obey,
 * `gateway.toml` in the service directory; none of them is an empty file.
 * @throws ConfigurationError if a file that was named is missing, or one cannot be read
 */
export function findConfiguration(options: SearchOptions): SearchResult {
  const { config, env, cwd } = options;
  if (config !== undefined) return readNamed(resolve(cwd, config), "--config");
  if (env.GATEHOUSE_CONFIG) {
    return readNamed(resolve(cwd, env.GATEHOUSE_CONFIG), "$GATEHOUSE_CONFIG");
  }
  const [besideCaller, file] = unnamedPlaces(options);
  const local = readLocal(besideCaller);
  if (local?.file !== undefined) return local;
  const warnings = local?.warnings ?? [];
  const bytes = unlessMissing(() => readRegular(file), file);
  return bytes === undefined
    ? { file: undefined, bytes: new Uint8Array(), warnings }
    : { file, bytes, warnings };
}

function readNamed(file: string, namedBy: string): SearchResult {
  const bytes = unlessMissing(() => readRegular(file), file);
  if (bytes !== undefined) return { file, bytes, warnings: [] };
  const reason = `does not exist, and ${namedBy} names it`;
  throw new ConfigurationError([{ source: file, reason }]);
}

/** Reads a file that the operator has named or put into the service directory. */
function readRegular(file: string): Uint8Array {
  const descriptor = openSync(file, readWithoutWaiting);
  try {
    const stats = fstatSync(descriptor);
    // That a directory cannot be read, its reading says.
    if (!stats.isFile() && !stats.isDirectory()) {
      throw new ConfigurationError([{ source: file, reason: "is no regular file" }]);
    }
    return readBounded(descriptor, file);
  } finally {
    closeSync(descriptor);
  }
}

/** Reads to the end, or up to the bound: the size that a file claims need not be its own. */
function readBounded(descriptor: number, file: string): Uint8Array {
  const buffer = new Uint8Array(LARGEST_BYTES + 1);
  let length = 0;
  for (;;) {
    const count = readSync(descriptor, buffer, length, buffer.length - length, null);
    if (count === 0) return buffer.slice(0, length);
    length += count;
    if (length > LARGEST_BYTES) {
      throw new ConfigurationError([{ source: file, reason: "is larger than 1 MiB" }]);
    }
  }
}

/** The working directory may be anybody's, so a file in it is obeyed only if it is the caller's. */
function readLocal(file: string): SearchResult | undefined {
  const link = lstatLocal(file);
  if (link === undefined) return undefined;
  if (link === "hidden") return passedOver(file, "it cannot be looked at");
  if (!isOwn(link)) return passedOver(file, "it belongs to somebody else", takeOver(file));
  const descriptor = unlessMissing(() => openSync(file, readWithoutWaiting), file);
  if (descriptor === undefined) return undefined;
  try {
    // The open file is judged, since the name may point to another one by now.
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) return passedOver(file, "it is no regular file");
    if (!isOwn(stats)) return passedOver(file, "it belongs to somebody else", takeOver(file));
    if (!onlyOwnerWrites(stats)) {
      const remedy = `chmod go-w ${shellQuoted(file)}`;
      return passedOver(file, "its group or others may write it", remedy);
    }
    return { file, bytes: readBounded(descriptor, file), warnings: [] };
  } finally {
    closeSync(descriptor);
  }
}

/** The caller need not be allowed to search the directory that a command is called in. */
function lstatLocal(file: string): Stats | "hidden" | undefined {
  try {
    return lstatSync(file, { throwIfNoEntry: false });
  } catch {
    return "hidden";
  }
}

function passedOver(file: string, why: string, remedy?: string): SearchResult {
  const mend = remedy === undefined ? `--config ${shellQuoted(file)}` : remedy;
  const warning = `${file} is passed over, since ${why}; to use it: ${mend}`;
  return { file: undefined, bytes: new Uint8Array(), warnings: [warning] };
}

function takeOver(file: string): string {
  return `chown -h ${process.geteuid?.() ?? "USER"} ${shellQuoted(file)}`;
}

function unlessMissing<T>(read: () => T, file: string): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw new ConfigurationError([{ source: file, reason: `cannot be read (${code})` }]);
  }
}
