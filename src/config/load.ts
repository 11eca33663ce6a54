import { statSync } from "node:fs";
import { permissionProblem } from "../files/permissions.ts";
import { lineLocator } from "../toml/outline.ts";
import { parseToml, type TomlDocument, TomlSyntaxError } from "../toml/values.ts";
import { holdsPassword } from "./addresses.ts";
import { findConfiguration, type SearchOptions, serviceDirectoryOf } from "./find.ts";
import { type Checked, problemsOf } from "./issues.ts";
import { ConfigurationError } from "./problem.ts";
import { credentialSections, type Draft, readCredentials, resolvePaths } from "./resolve.ts";
import { type Configuration, configurationSchema } from "./schema.ts";

/** Where to look for the configuration, and what overrides it. */
export interface LoadOptions extends SearchOptions {
  /** The command line's `--host`. */
  readonly host?: string | undefined;
  /** The command line's `--port`. */
  readonly port?: number | undefined;
}

/** A configuration that can be used, and where it came from. */
export interface LoadedConfiguration {
  readonly configuration: Configuration;
  /** The file that it was read from, absolute; undefined if defaults alone are in force. */
  readonly file: string | undefined;
  /** The directory of Gatehouse's own files, absolute; it need not exist. */
  readonly serviceDirectory: string;
  /** What the operator should know; none of it stops the start. */
  readonly warnings: readonly string[];
}

/**
 * Finds, reads and checks the configuration. Every path in the result is absolute, and the
 * credential of an `authorization_file` is read into the `authorization` beside it.
 * @throws ConfigurationError with every problem found
 */
export function loadConfiguration(options: LoadOptions): LoadedConfiguration {
  const serviceDirectory = serviceDirectoryOf(options);
  const { file, bytes, warnings } = findConfiguration(options);
  const document = readDocument(bytes, file);
  const checked = withOverrides(document, file, options);
  const configuration = check(checked);
  const held = credentialSections.filter((name) => configuration[name].authorization !== undefined);
  const { upstream, store } = configuration;
  const hasPassword = [upstream.url, store.url].some((url = "") => holdsPassword(url));
  resolvePaths(configuration, file, serviceDirectory);
  readCredentials(configuration, checked);
  return {
    configuration: deepFrozen(configuration),
    file,
    serviceDirectory,
    warnings: [
      ...warnings,
      ...[
        ...held.map((name) => `${name}.authorization`),
        ...(hasPassword ? ["a password"] : []),
      ].flatMap((what) => readersWarning(what, file, configuration.auth.check_permissions)),
    ],
  };
}

function readDocument(bytes: Uint8Array, file: string | undefined): TomlDocument {
  const text = decoded(bytes, file);
  try {
    return parseToml(text, file ?? "");
  } catch (error) {
    if (!(error instanceof TomlSyntaxError)) throw error;
    throw new ConfigurationError([{ source: file, line: error.line, reason: error.reason }]);
  }
}

function decoded(bytes: Uint8Array, file: string | undefined): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ConfigurationError([{ source: file, reason: "is not valid UTF-8" }]);
  }
}

/** Lays the command line over the file, so that problems name the one that a value came from. */
function withOverrides(
  document: TomlDocument,
  file: string | undefined,
  { host, port }: LoadOptions,
): Checked {
  const lineOf = lineLocator(document.text);
  const overrides = new Map<PropertyKey, string | number>();
  if (host !== undefined) overrides.set("host", host);
  if (port !== undefined) overrides.set("port", port);
  const { server = {} } = document.values;
  const isTable = typeof server === "object" && !Array.isArray(server);
  const overridden = isTable ? { ...server, ...Object.fromEntries(overrides) } : server;
  return {
    values: overrides.size === 0 ? document.values : { ...document.values, server: overridden },
    placeOf: (path) =>
      path[0] === "server" && path[1] !== undefined && overrides.has(path[1])
        ? { source: `--${String(path[1])}` }
        : { source: file, line: lineOf(path) },
  };
}

function check(checked: Checked): Draft {
  const result = configurationSchema.safeParse(withoutDates(checked.values));
  if (result.success) return result.data;
  const problems = result.error.issues.flatMap((issue) => problemsOf(issue, checked));
  throw new ConfigurationError(problems.sort((one, other) => (one.line ?? 0) - (other.line ?? 0)));
}

/**
 * No key takes a date, but the schema would take one for a table without keys; null is refused
 * everywhere.
 */
function withoutDates(value: unknown): unknown {
  if (value instanceof Date) return null;
  if (Array.isArray(value)) return value.map(withoutDates);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, withoutDates(member)]),
  );
}

function readersWarning(what: string, file: string | undefined, checkReaders: boolean): string[] {
  const stats = file === undefined ? undefined : statSync(file, { throwIfNoEntry: false });
  if (file === undefined || stats === undefined) return [];
  const problem = permissionProblem(file, stats, checkReaders);
  if (problem === undefined) return [];
  return [`${file} holds ${what}, and ${problem.reason}; run: ${problem.remedy}`];
}

/** The value itself, which nobody can change from now on. */
export function deepFrozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) deepFrozen(member);
    Object.freeze(value);
  }
  return value;
}
