import { randomBytes } from "node:crypto";
import path from "node:path";
import { styleText } from "node:util";
import { type Command, InvalidArgumentError } from "commander";
import type { SectionResult, Send } from "../conformance/run.ts";
import type { PostgresDatabases } from "../engine/postgres/dialect.ts";
import { answerHeartbeat } from "../ipc/heartbeat.ts";
import { createLog, exitOnUncaughtErrors, openLogStream } from "../observe/log.ts";
import type { Level } from "../query/kind.ts";
import { type CommonOptions, defineCommand } from "./options.ts";
import { Cancelled, explain, FAILURE, print, printJson, UsageError } from "./output.ts";

interface TestOptions extends CommonOptions {
  readonly url: string;
  readonly level: Level;
  readonly authorizationFile?: string;
}

/** `--json` prints responses in full. */
const MOST_PRINTED_CHARACTERS = 4000;

function printSection({ name, cases, failures }: SectionResult): void {
  const isGood = failures.length === 0;
  const word = isGood ? styleText("green", "ok  ") : styleText("red", "FAIL");
  print(`${word}  ${name} (${isGood ? cases : `${failures.length} of ${cases} failed`})`);
  for (const { name, sent, expected, got, difference } of failures) {
    // Without terminal control sequences.
    const answer = got.answer
      .trimEnd()
      .slice(0, MOST_PRINTED_CHARACTERS)
      .replace(/\p{Cc}+/gu, " ");
    print(`  ${name}: ${difference}`);
    print(`    sent      ${sent}`);
    print(`    expected  ${expected.status} ${expected.answer}`);
    print(`    got       ${got.status} ${answer}`);
  }
}

async function runConformance({
  url,
  level,
  authorizationFile: file,
  json,
}: TestOptions): Promise<void> {
  const { isBaseUrl } = await import("../config/addresses.ts");
  // The message omits the URL, which may contain a password.
  if (!isBaseUrl(url) && !/^unix:\/./.test(url)) {
    throw new UsageError("--url: allowed: http://host:port, https://host:port, unix:/path");
  }
  const { connectTo, readCases, runSection, sectionsAt } = await import("../conformance/run.ts");
  const { readCredential } = await import("../config/resolve.ts");
  const refuse = (allowed: string) => new Error(`${file}: allowed: ${allowed}`);
  const authorization = file && readCredential(path.resolve(file), true, refuse);
  const connected = connectTo(url, authorization);
  const send: Send = (body) =>
    connected(body).catch((error: unknown) => {
      throw new Error(`no response from ${url}: ${explain(error)}`, { cause: error });
    });
  const prefix = `conformance_${randomBytes(4).toString("hex")}`;
  let isStopped = false;
  // The running test finishes first, so that its databases are dropped.
  process.once("SIGINT", () => {
    isStopped = true;
  });
  const results: SectionResult[] = [];
  for (const section of sectionsAt(level, readCases().sections)) {
    if (isStopped) break;
    const result = await runSection(section, `${prefix}_${results.length}`, send);
    if (!json) printSection(result);
    results.push(result);
  }
  const failures = results.flatMap((result) => result.failures);
  const cases = results.reduce((sum, result) => sum + result.cases, 0);
  if (json) printJson({ url, level, cases, failures });
  else print(`${cases} cases at level ${level}, ${failures.length} failed`);
  if (isStopped) throw new Cancelled();
  if (failures.length > 0) process.exitCode = FAILURE;
}

interface EngineOptions extends CommonOptions {
  readonly databases?: PostgresDatabases;
  readonly listen?: string;
  readonly statementTimeout?: number;
  readonly poolSize?: number;
}

function numberUpTo(highest: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,9}$/.test(text) ? Number(text) : 0;
    if (number >= 1 && number <= highest) return number;
    throw new InvalidArgumentError(`Allowed: a whole number from 1 to ${highest}.`);
  };
}

/**
 * Resolves when the engine's gateway is gone or, without a gateway, on a signal. A gateway's engine
 * ignores signals, because it must outlive the gateway's last request.
 */
function untilStopped(): Promise<void> {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  return new Promise((resolve) => {
    const isSupervised = process.send !== undefined;
    for (const signal of signals) process.on(signal, () => isSupervised || resolve());
    if (!isSupervised) return;
    process.once("disconnect", () => resolve());
    if (!process.connected) resolve();
  });
}

/**
 * Finds the database URL and the listen address. Reads the configuration only if needed: a file that
 * broke after the start must not keep a gateway's engine from restarting.
 *
 * @throws UsageError for an option that the database does not support
 */
async function addressesOf(options: EngineOptions): Promise<{ url: string; listen: string }> {
  // Other users can read command lines, and the URL may contain a password.
  const { url: given = process.env.GATEHOUSE_ENGINE_URL || undefined, listen } = options;
  const { serviceDirectory: home = "" } =
    given === undefined || listen === undefined ? (await import("./load.ts")).loadFor(options) : {};
  const url = given ?? `sqlite:${path.join(home, "data")}`;
  if (options.databases !== undefined && !/^postgres(ql)?:/.test(url)) {
    throw new UsageError(
      "--databases works only with PostgreSQL, whose --url begins with postgres:",
    );
  }
  if (options.poolSize !== undefined && url.startsWith("sqlite:")) {
    throw new UsageError("--pool-size works only with database servers, not with SQLite files");
  }
  return { url, listen: listen ?? `unix:${path.join(home, "engine.sock")}` };
}

async function serve(options: EngineOptions): Promise<void> {
  const { url, listen } = await addressesOf(options);
  const { databases, statementTimeout, poolSize } = options;
  if (options.url?.startsWith("sqlite:") === false) process.title = "gatehouse engine";
  if (process.send !== undefined) answerHeartbeat();
  const stopped = untilStopped();
  const isTerminal = process.stdout.isTTY ?? false;
  const log = createLog(await openLogStream(isTerminal), "engine");
  // On a terminal, the gateway reports for both, so the engine logs only problems.
  if (isTerminal && process.send !== undefined) log.level = "warn";
  exitOnUncaughtErrors(log);
  const { startEngine } = await import("../engine/engine.ts");
  const engine = await startEngine({
    ...{ url, listen, databases, poolSize, log },
    queryTimeLimit: statementTimeout && statementTimeout * 1000,
    authorization: process.env.GATEHOUSE_ENGINE_AUTHORIZATION,
  });
  process.send?.("ready");
  void engine.reportUnavailable();
  await stopped;
  await engine.close();
  process.exit();
}

const help = `
engine          run the SQL adapter on its own; it trusts every client
  --url <url>   the database: sqlite:DIRECTORY (default: data in the service directory), postgres://user@host:port/database or mysql://user@host:port/
  --databases <kind>  PostgreSQL: whether a database in a query is a schema of the database in --url or a database of the server (default: schemas)
  --listen <address>  unix:/path or 127.0.0.1:port (default: engine.sock in the service directory)
  --statement-timeout <seconds>  most time that the database may take for one query (default: 30)
  --pool-size <count>  most concurrent queries on a database server (default: 16)
`;
const notes = `
If $GATEHOUSE_ENGINE_AUTHORIZATION is set, each request must send it as its Authorization header.
$GATEHOUSE_ENGINE_URL replaces --url and does not appear in the process list.
Keep passwords out of the URL: for PostgreSQL use ~/.pgpass or $PGPASSWORD, for MySQL $MYSQL_PWD.`;
const testHelp = `
test --json     send every example query to a database and compare the responses; creates and drops its own databases
  --url <url>   the address: http://host:port, https://host:port, unix:/path (required)
  --level <level>  the level of the query language to test
  --authorization-file <file>  a file with the Authorization header to send
`;

export function engineCommand(): Command {
  const run = (options: EngineOptions) =>
    serve(options).catch((error: unknown) => {
      // The open channel to the gateway would keep a failed engine process alive.
      if (process.connected) process.disconnect?.();
      throw error;
    });
  const test = defineCommand(
    testHelp,
    { test: runConformance },
    { level: { choices: ["core", "full"], fallback: ["core"] } },
  );
  return defineCommand(
    help,
    { engine: run },
    {
      databases: { choices: ["schemas", "databases"] },
      statementTimeout: { parse: numberUpTo(86_400) },
      poolSize: { parse: numberUpTo(1000) },
    },
  )
    .enablePositionalOptions()
    .addHelpText("after", notes)
    .addCommand(test);
}
