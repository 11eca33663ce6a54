import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  type Stats,
  statSync,
} from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import type { TomlTable } from "smol-toml";
import { systemCode } from "../base/client-error.ts";
import {
  decodeUtf8,
  isOwn,
  onlyOwnerWrites,
  permissionProblem,
  shellQuoted,
  UnsafeFileError,
} from "../base/files/guarded.ts";
import { lineLocator, parseToml, TomlSyntaxError } from "../base/toml.ts";
import { holdsPassword } from "./addresses.ts";
import { type Checked, issueProblems } from "./issues.ts";
import { ConfigurationError } from "./problem.ts";
import { credentialSections, type Draft, readCredentials, resolvePaths } from "./resolve.ts";
import { type Configuration, configurationSchema } from "./schema.ts";

const fileName = "gateway.toml";
/** Otherwise a pipe of that name would block the start forever. */
const readWithoutWaiting = constants.O_RDONLY | constants.O_NONBLOCK;
const LARGEST_BYTES = 1_048_576;

interface SearchOptions {
  readonly config?: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  /** Base directory for relative paths of the command line and the environment. */
  readonly cwd: string;
}

interface SearchResult {
  readonly file: string | undefined;
  readonly bytes: Uint8Array;
  readonly warnings: readonly string[];
}

/** The directory of Gatehouse's own files: `$GATEHOUSE_HOME`, else `~/.gatehouse`. Absolute. */
export function findServiceDirectory({ env, cwd }: SearchOptions): string {
  if (env.GATEHOUSE_HOME) return resolve(cwd, env.GATEHOUSE_HOME);
  return resolve(cwd, env.HOME || homedir(), ".gatehouse");
}

/** Files tried if none is named, in order of precedence. Absolute. */
export function defaultFiles(options: SearchOptions): readonly [string, string] {
  return [resolve(options.cwd, fileName), join(findServiceDirectory(options), fileName)];
}

/**
 * Reads the first of: `--config`, `$GATEHOUSE_CONFIG`, `./gateway.toml` if it is safe to trust,
 * `gateway.toml` in the service directory. Without a file, the configuration is empty.
 *
 * @throws ConfigurationError if a named file is missing, or if one cannot be read
 */
export function findConfiguration(options: SearchOptions): SearchResult {
  const { config, env, cwd } = options;
  if (config === "") {
    const reason = "names no file; leave it out to use gateway.toml of this directory";
    throw new ConfigurationError([{ source: "--config", reason }]);
  }
  if (config !== undefined) return readNamed(resolve(cwd, config), "--config");
  if (env.GATEHOUSE_CONFIG) {
    return readNamed(resolve(cwd, env.GATEHOUSE_CONFIG), "$GATEHOUSE_CONFIG");
  }
  const [besideCaller, file] = defaultFiles(options);
  const local = readLocal(besideCaller);
  if (local?.file !== undefined) return local;
  // From within the service directory, its file is read all the same.
  const warnings = besideCaller === file ? [] : (local?.warnings ?? []);
  const bytes = unlessMissing(() => readRegular(file), file);
  return bytes === undefined
    ? { file: undefined, bytes: new Uint8Array(), warnings }
    : { file, bytes, warnings };
}

function readNamed(file: string, namedBy: string): SearchResult {
  const bytes = unlessMissing(() => readRegular(file), file);
  if (bytes !== undefined) return { file, bytes, warnings: [] };
  const reason = `does not exist, but ${namedBy} names it`;
  throw new ConfigurationError([{ source: file, reason }]);
}

function readRegular(file: string): Uint8Array {
  const descriptor = openSync(file, readWithoutWaiting);
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) {
      const reason = stats.isDirectory()
        ? `is a directory; name a file in it, such as ${join(file, fileName)}`
        : "is not a regular file";
      throw new ConfigurationError([{ source: file, reason }]);
    }
    return readBounded(descriptor, stats, file);
  } finally {
    closeSync(descriptor);
  }
}

/** The reported size of a file may be wrong. */
function readBounded(descriptor: number, { size }: Stats, file: string): Uint8Array {
  const bytes = size > LARGEST_BYTES ? undefined : readFileSync(descriptor);
  if (bytes !== undefined && bytes.length <= LARGEST_BYTES) return bytes;
  throw new ConfigurationError([{ source: file, reason: "is larger than 1 MiB" }]);
}

/** Anyone may own the working directory, so a file in it must be the caller's own. */
function readLocal(file: string): SearchResult | undefined {
  let link: Stats | undefined;
  try {
    link = lstatSync(file, { throwIfNoEntry: false });
  } catch {
    // The caller may lack search permission for the working directory.
    return skippedFile(file, "it cannot be inspected");
  }
  if (link === undefined) return undefined;
  const isForeign = () => {
    const remedy = `chown -h ${process.geteuid?.() ?? "USER"} ${shellQuoted(file)}`;
    return skippedFile(file, "it belongs to another user", remedy);
  };
  if (!isOwn(link)) return isForeign();
  const descriptor = unlessMissing(() => openSync(file, readWithoutWaiting), file);
  if (descriptor === undefined) return undefined;
  try {
    // Check the open file, since the name may lead to another one now.
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) return skippedFile(file, "it is not a regular file");
    if (!isOwn(stats)) return isForeign();
    if (!onlyOwnerWrites(stats)) {
      const remedy = `chmod go-w ${shellQuoted(file)}`;
      return skippedFile(file, "its group or others may write it", remedy);
    }
    return { file, bytes: readBounded(descriptor, stats, file), warnings: [] };
  } finally {
    closeSync(descriptor);
  }
}

function skippedFile(
  file: string,
  why: string,
  remedy = `--config ${shellQuoted(file)}`,
): SearchResult {
  const warning = `${file} is ignored, since ${why}; to use it: ${remedy}`;
  return { file: undefined, bytes: new Uint8Array(), warnings: [warning] };
}

function unlessMissing<T>(read: () => T, file: string): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    const code = systemCode(error);
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    const reason = `cannot be read (${code})`;
    throw new ConfigurationError([{ source: file, reason }], { cause: error });
  }
}

export interface LoadOptions extends SearchOptions {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
}

export interface LoadedConfiguration {
  readonly configuration: Configuration;
  /** Absolute; undefined if only defaults are in force. */
  readonly file: string | undefined;
  /** Absolute; the directory need not exist. */
  readonly serviceDirectory: string;
  readonly warnings: readonly string[];
}

/**
 * Finds, reads and checks the configuration. Every path in the result is absolute, and each
 * `authorization_file` is read into the `authorization` beside it.
 *
 * @throws ConfigurationError with every problem found
 */
export function loadConfiguration(options: LoadOptions): LoadedConfiguration {
  const serviceDirectory = findServiceDirectory(options);
  const { file, bytes, warnings } = findConfiguration(options);
  const checked = readDocument(bytes, file, options);
  const configuration = check(checked);
  const { upstream, store } = configuration;
  const secrets = credentialSections
    .filter((name) => configuration[name].authorization !== undefined)
    .map((name) => `${name}.authorization`);
  if ([upstream.url, store.url].some((url = "") => holdsPassword(url))) secrets.push("a password");
  resolvePaths(configuration, file, serviceDirectory);
  readCredentials(configuration, checked);
  return {
    configuration: deepFrozen(configuration),
    file,
    serviceDirectory,
    warnings: [
      ...warnings,
      ...secrets.flatMap((what) =>
        readersWarning(what, file, configuration.auth.check_permissions),
      ),
    ],
  };
}

/** Applies the command line to the file, and records the source of each value. */
function readDocument(
  bytes: Uint8Array,
  file: string | undefined,
  { host, port }: LoadOptions,
): Checked {
  let text: string;
  let values: TomlTable;
  try {
    text = decodeUtf8(file ?? "", bytes);
    values = parseToml(text, file ?? "");
  } catch (error) {
    if (!(error instanceof TomlSyntaxError || error instanceof UnsafeFileError)) throw error;
    const line = error instanceof TomlSyntaxError ? error.line : undefined;
    throw new ConfigurationError([{ source: file, line, reason: error.reason }]);
  }
  const { server = {} } = values;
  const overrides = {
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port }),
  };
  const isTable = typeof server === "object" && !Array.isArray(server);
  if (isTable) values.server = Object.assign(server, overrides);
  const lineOf = lineLocator(text);
  return {
    values,
    placeOf: (path) =>
      path[0] === "server" && path[1] !== undefined && Object.hasOwn(overrides, path[1])
        ? { source: `--${String(path[1])}` }
        : { source: file, line: lineOf(path) },
  };
}

function check(checked: Checked): Draft {
  const result = configurationSchema.safeParse(withoutDates(checked.values));
  if (result.success) return result.data;
  const problems = result.error.issues.flatMap((issue) => issueProblems(issue, checked));
  throw new ConfigurationError(problems.sort((one, other) => (one.line ?? 0) - (other.line ?? 0)));
}

/** The schema would accept a date as a table without keys. Null is refused everywhere. */
function withoutDates(value: unknown): unknown {
  if (value instanceof Date) return null;
  if (Array.isArray(value)) return value.map(withoutDates);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withoutDates(one)]));
}

function readersWarning(what: string, file: string | undefined, checkReaders: boolean): string[] {
  const stats = file === undefined ? undefined : statSync(file, { throwIfNoEntry: false });
  if (file === undefined || stats === undefined) return [];
  const problem = permissionProblem(file, stats, checkReaders);
  if (problem === undefined) return [];
  return [`${file} holds ${what}, and ${problem.reason}; run: ${problem.remedy}`];
}

export function deepFrozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) deepFrozen(member);
    Object.freeze(value);
  }
  return value;
}
