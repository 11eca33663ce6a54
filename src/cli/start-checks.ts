import { accessSync, constants, existsSync, globSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { findDataDirectory, hasOwnEngine } from "../app/own-engine.ts";
import { directoryProblem } from "../core/base/files/guarded.ts";
import { invocation } from "../core/base/product.ts";
import { isLoopback, isUnspecified, storesAccess } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import {
  allIssuers,
  type Configuration,
  hasEmbeddedServer,
  servesMcp,
} from "../core/config/schema.ts";
import { keyDirectoryPath } from "../core/identity/key-file.ts";
import { stateDirectoryPath } from "../features/oauth/server/state-file.ts";
import { explain } from "./output.ts";

/** Explains why a file is no key set (RFC 7517). */
function keySetProblem(file: string): string | undefined {
  try {
    if (!statSync(file).isFile()) return `${file} is not a regular file`;
    const { keys } = Object(JSON.parse(readFileSync(file, "utf8")));
    return Array.isArray(keys) ? undefined : `${file} is not a key set: it has no list keys`;
  } catch (error) {
    return error instanceof SyntaxError ? `${file} is not JSON` : explain(error);
  }
}

export function exposureWarnings(loaded: LoadedConfiguration) {
  const { auth, server, store, routes, upstream } = loaded.configuration;
  const warnings: { about: { host?: string }; sentence: string }[] = [];
  const warn = (sentence: string, about = {}) => void warnings.push({ about, sentence });
  const keys = [loaded.serviceDirectory, keyDirectoryPath(loaded.serviceDirectory)];
  const directories = new Set(store.url === undefined ? keys : []);
  if (!storesAccess(loaded.configuration)) directories.add(path.dirname(auth.access_control_file));
  for (const directory of directories) {
    // Another user could replace keys or the access file.
    const problem = existsSync(directory) && directoryProblem(directory, statSync(directory));
    if (problem) warn(`${directory}: ${problem}`);
  }
  const about = { host: server.host };
  const hasNoUrl = servesMcp(loaded.configuration) && server.public_url === "";
  if (!isLoopback(server.host) && server.tls.certificate === undefined) {
    warn(
      "other machines can reach this address without TLS: set [server.tls], or use a reverse proxy with TLS",
      about,
    );
  }
  if (hasNoUrl && isUnspecified(server.host)) {
    warn("MCP clients cannot log in at this address: set server.public_url", about);
  }
  if (hasNoUrl && store.url !== undefined) {
    warn(
      "replicas need a common URL: set server.public_url, or apps that log in at one replica are refused by the others",
    );
  }
  if (routes.length > 0 && hasOwnEngine(loaded) && upstream.databases.length === 0) {
    warn("[[routes]] answer 404: the engine has no paths; name a server in upstream.url");
  }
  const data = findDataDirectory(loaded);
  const unused = data === undefined ? [] : globSync("*.{db,db3,sqlite3}", { cwd: data });
  for (const name of unused) {
    if (existsSync(path.join(data ?? "", databaseFile(name)))) continue;
    warn(`${name} in ${data} is not used as a database: rename it to ${databaseFile(name)}`);
  }
  for (const { issuer, jwks_file: keys } of allIssuers(loaded.configuration)) {
    const problem = keys === undefined ? undefined : keySetProblem(keys);
    if (problem !== undefined) warn(`tokens of ${issuer} are refused: ${problem}`);
  }
  const file = auth.access_control_file;
  if (storesAccess(loaded.configuration) && existsSync(file)) {
    warn(
      `${file} is ignored, because users and grants are in the store. Delete or rename it, or load it with \`${invocation} store import\``,
    );
  }
  if (!auth.enabled) {
    warn("AUTHENTICATION IS OFF: every caller may do everything (auth.enabled = false)");
  }
  return warnings;
}

/** A file or directory that a start writes. */
interface Written {
  readonly file: string;
  readonly isDirectory: boolean;
  /** True if missing directories above it are created too. */
  readonly makesParents: boolean;
}

function writtenByStart(loaded: LoadedConfiguration): Written[] {
  const { configuration, serviceDirectory } = loaded;
  const { auth, audit, store } = configuration;
  const { access_control_file: accessFile } = auth;
  const isOwn = store.url === undefined;
  const keys = keyDirectoryPath(serviceDirectory);
  const directory = path.dirname(accessFile);
  // A service directory that has to be created is already in the list.
  const isChecked = directory !== serviceDirectory || existsSync(directory);
  const data = findDataDirectory(loaded);
  const directories = [
    serviceDirectory,
    isOwn && !existsSync(keys) && keys,
    data,
    isOwn && hasEmbeddedServer(configuration) && stateDirectoryPath(serviceDirectory),
  ];
  const files = [audit.file, isOwn && isChecked && !existsSync(accessFile) && accessFile];
  const isText = (file: string | false | undefined) => typeof file === "string";
  return [
    ...directories.filter(isText).map((file) => ({
      file,
      isDirectory: true,
      makesParents: file !== data || path.dirname(data) === serviceDirectory,
    })),
    ...files.filter(isText).map((file) => ({ file, isDirectory: false, makesParents: false })),
  ];
}

const reasons: Readonly<Record<string, string>> = {
  EACCES: "this user may not write to",
  EPERM: "this user may not write to",
  EROFS: "the file system is read-only:",
};

/** Such as `shop.sqlite` for `data/shop.db`. */
function databaseFile(file: string): string {
  return `${path.parse(file).name}.sqlite`;
}

/** Explains why it cannot be written, as far as that can be checked without writing. */
function writeProblem({ file, isDirectory, makesParents }: Written): string | undefined {
  let found = file;
  while (!existsSync(found) && found !== path.dirname(found)) found = path.dirname(found);
  const isThere = found === file;
  const mustBeDirectory = isDirectory || !isThere;
  if (!makesParents && !isThere && found !== path.dirname(file)) {
    return `the directory ${path.dirname(file)} does not exist`;
  }
  if (statSync(found).isDirectory() !== mustBeDirectory) {
    if (!mustBeDirectory) return `${found} is a directory`;
    const isDatabase = /\.(?:sqlite3?|db3?)$/.test(found);
    const place = `write sqlite:${path.dirname(found)}, and call the file ${databaseFile(found)}`;
    return `${found} is not a directory${isDatabase ? `; ${place}` : ""}`;
  }
  try {
    accessSync(found, mustBeDirectory ? constants.W_OK | constants.X_OK : constants.W_OK);
    return undefined;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    return `${reasons[code] ?? code} ${found}`;
  }
}

/** Describes what a start could not write. Creates and changes nothing. */
export function writeProblems(loaded: LoadedConfiguration): string[] {
  return writtenByStart(loaded).flatMap((written) => {
    const problem = writeProblem(written);
    return problem === undefined ? [] : [`cannot write ${written.file}: ${problem}`];
  });
}

const listenFailures = new Map([
  ["EADDRINUSE", "is in use by another process"],
  ["EACCES", "is not allowed for this user"],
  ["EADDRNOTAVAIL", "is not an address of this machine"],
]);

/** Names the option that chooses another address; returns other errors unchanged. */
function explainListenFailure(error: unknown, { server, console }: Configuration): unknown {
  if (error instanceof Error && "hostname" in error && error.hostname === server.host) {
    const problem = `${server.host} has no address; choose another with --host (or server.host)`;
    return new Error(problem, { cause: error });
  }
  if (!(error instanceof Error && "code" in error && "port" in error)) return error;
  const reason = listenFailures.get(String(error.code));
  if (reason === undefined || !("syscall" in error && error.syscall === "listen")) return error;
  const isMain = error.port === server.port;
  const host = isMain || !("address" in error) ? server.host : String(error.address);
  const place = `${host.includes(":") ? `[${host}]` : host}:${error.port}`;
  const other = console.listen?.endsWith(`:${error.port}`) ? "console.listen" : "metrics.listen";
  const remedy = isMain ? "--port (or server.port)" : other;
  return new Error(`${place} ${reason}; choose another with ${remedy}`, { cause: error });
}

export function explainStartFailure(error: unknown, loaded: LoadedConfiguration): unknown {
  const explained = explainListenFailure(error, loaded.configuration);
  const [problem] = writeProblems(loaded);
  if (explained !== error || problem === undefined || !(error instanceof Error)) return explained;
  const remedy = problem.startsWith(`cannot write ${loaded.serviceDirectory}`)
    ? "Make it writable, or choose another service directory with $GATEHOUSE_HOME."
    : "Correct this, or name another place in the configuration.";
  const what = "errno" in error ? "The gateway cannot start." : error.message;
  return new Error(`${what}\n${problem}\n${remedy}`, { cause: error });
}
