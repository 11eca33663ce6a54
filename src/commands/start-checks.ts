import { accessSync, constants, existsSync, statSync } from "node:fs";
import path from "node:path";
import { isLoopback, isUnspecified, storesAccess } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { directoryProblem } from "../files/guarded.ts";
import { dataDirectoryOf, hasOwnEngine } from "../gateway/own-engine.ts";
import { keysDirectoryOf } from "../identity/key-file.ts";
import { stateDirectoryOf } from "../oauth/server/state-file.ts";
import { invocation } from "../product.ts";

export function exposureWarnings(loaded: LoadedConfiguration) {
  const { auth, server, mcp, store } = loaded.configuration;
  const warnings: { about: { host?: string }; sentence: string }[] = [];
  const warn = (sentence: string, about = {}) => void warnings.push({ about, sentence });
  const keys = [loaded.serviceDirectory, keysDirectoryOf(loaded.serviceDirectory)];
  const directories = new Set(store.url === undefined ? keys : []);
  if (!storesAccess(loaded.configuration)) directories.add(path.dirname(auth.access_control_file));
  for (const directory of directories) {
    // Another user could replace keys or the access file.
    const problem = existsSync(directory) && directoryProblem(directory, statSync(directory));
    if (problem) warn(`${directory}: ${problem}`);
  }
  const about = { host: server.host };
  const hasNoUrl = mcp.enabled && server.public_url === "";
  if (!isLoopback(server.host) && server.tls.certificate === undefined) {
    warn(
      "other machines can reach this address: switch TLS on ([server.tls]) or put it in front",
      about,
    );
  }
  if (hasNoUrl && isUnspecified(server.host)) {
    warn(
      "this address cannot be opened: set server.public_url, or no MCP client can log in",
      about,
    );
  }
  if (hasNoUrl && store.url !== undefined) {
    warn(
      "replicas need one URL: set server.public_url, or an app that logs in at one is nobody at the others",
    );
  }
  const file = auth.access_control_file;
  if (storesAccess(loaded.configuration) && existsSync(file)) {
    warn(
      `${file} is ignored: users and grants are in the store. Delete or rename it, or replace what is in the store by it: \`${invocation} store import\``,
    );
  }
  if (!auth.enabled) {
    warn("AUTHENTICATION IS OFF: every caller may do everything (auth.enabled = false)");
  }
  return warnings;
}

/** A directory is created with its parents if missing. */
type Written = { readonly file: string; readonly isDirectory: boolean };

function writtenByStart(loaded: LoadedConfiguration): Written[] {
  const { configuration, serviceDirectory } = loaded;
  const { auth, audit, mcp, store } = configuration;
  const { access_control_file: accessFile } = auth;
  const isOwn = store.url === undefined;
  const keys = keysDirectoryOf(serviceDirectory);
  const hasAuthorizationServer = mcp.enabled && mcp.authorization_servers.length === 0;
  const directory = path.dirname(accessFile);
  // A service directory that has to be created is tested separately.
  const isMade = directory !== serviceDirectory || existsSync(directory);
  const directories = [
    serviceDirectory,
    isOwn && !existsSync(keys) && keys,
    dataDirectoryOf(loaded),
    isOwn && hasAuthorizationServer && stateDirectoryOf(serviceDirectory),
  ];
  const files = [audit.file, isOwn && isMade && !existsSync(accessFile) && accessFile];
  const isText = (file: string | false | undefined) => typeof file === "string";
  return [
    ...directories.filter(isText).map((file) => ({ file, isDirectory: true })),
    ...files.filter(isText).map((file) => ({ file, isDirectory: false })),
  ];
}

const reasons: Readonly<Record<string, string>> = {
  EACCES: "this user may not write",
  EPERM: "this user may not write",
  EROFS: "it is on a file system that can only be read:",
};

/** Why it cannot be written, as far as that can be checked without writing; otherwise undefined. */
function problemOf({ file, isDirectory }: Written): string | undefined {
  let found = file;
  while (!existsSync(found) && found !== path.dirname(found)) found = path.dirname(found);
  const isThere = found === file;
  const mustBeDirectory = isDirectory || !isThere;
  if (!isDirectory && !isThere && found !== path.dirname(file)) {
    return `there is no directory ${path.dirname(file)}`;
  }
  if (statSync(found).isDirectory() !== mustBeDirectory) {
    return mustBeDirectory ? `${found} is no directory` : `${found} is a directory`;
  }
  try {
    accessSync(found, mustBeDirectory ? constants.W_OK | constants.X_OK : constants.W_OK);
    return undefined;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    return `${reasons[code] ?? code} ${found}`;
  }
}

/** Describes what a start could not write, one sentence each. Nothing is created or changed. */
export function writeProblems(loaded: LoadedConfiguration): string[] {
  return writtenByStart(loaded).flatMap((written) => {
    const problem = problemOf(written);
    return problem === undefined ? [] : [`${written.file}: cannot be written: ${problem}`];
  });
}

const listenFailures = new Map([
  ["EADDRINUSE", "is taken by another process"],
  ["EACCES", "may not be listened on by this user"],
  ["EADDRNOTAVAIL", "is no address of this machine"],
]);

/** Names the option that chooses another address; returns other errors unchanged. */
function explainListenFailure(error: unknown, { server, console }: Configuration): unknown {
  if (!(error instanceof Error && "code" in error && "port" in error)) return error;
  const reason = listenFailures.get(String(error.code));
  if (reason === undefined || !("syscall" in error && error.syscall === "listen")) return error;
  const isFront = error.port === server.port;
  const host = isFront || !("address" in error) ? server.host : String(error.address);
  const place = `${host.includes(":") ? `[${host}]` : host}:${error.port}`;
  const other = console.listen?.endsWith(`:${error.port}`) ? "console.listen" : "metrics.listen";
  const remedy = isFront ? "--port (or server.port)" : other;
  return new Error(`${place} ${reason}: choose another one with ${remedy}`, { cause: error });
}

/** Throws before an engine starts that cannot create its socket: it would print the bare errno. */
export function requireSocketDirectory(loaded: LoadedConfiguration): void {
  const directory = { file: loaded.serviceDirectory, isDirectory: true };
  if (hasOwnEngine(loaded) && problemOf(directory) !== undefined) {
    throw new Error("The engine cannot create its socket.");
  }
}

export function explainStartFailure(error: unknown, loaded: LoadedConfiguration): unknown {
  const explained = explainListenFailure(error, loaded.configuration);
  const [problem] = writeProblems(loaded);
  if (explained !== error || problem === undefined || !(error instanceof Error)) return explained;
  const remedy = "Make it writable, or choose another service directory with $GATEHOUSE_HOME.";
  // The message of an errno says no more than the problem does.
  const what = "errno" in error ? "The gateway cannot start." : error.message;
  return new Error(`${what}\n${problem}\n${remedy}`, { cause: error });
}
