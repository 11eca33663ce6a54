import { randomBytes } from "node:crypto";
import path from "node:path";
import { styleText } from "node:util";
import { Command, InvalidArgumentError, Option } from "commander";
import type { SectionResult, Send } from "../conformance/run.ts";
import type { PostgresDatabases } from "../engine/postgres/dialect.ts";
import { answerHeartbeat } from "../ipc/heartbeat.ts";
import { createLog, exitOnUncaughtErrors, openLogStream } from "../observe/log.ts";
import type { Level } from "../query/kind.ts";
import { type CommonOptions, withCommonOptions, withHouseStyle } from "./options.ts";
import { Cancelled, FAILURE, print, printJson, UsageError } from "./output.ts";

interface TestOptions extends CommonOptions {
  readonly url: string;
  readonly level: Level;
  readonly authorizationFile?: string;
}

/** Characters printed of an answer; `--json` prints all of it. */
const LONGEST_SHOWN = 4000;

function printSection({ name, cases, failures }: SectionResult): void {
  const isGood = failures.length === 0;
  const word = isGood ? styleText("green", "ok  ") : styleText("red", "FAIL");
  print(`${word}  ${name} (${isGood ? cases : `${failures.length} of ${cases} failed`})`);
  for (const { name, sent, expected, got, difference } of failures) {
    // Without terminal control sequences.
    const answer = got.answer
      .trimEnd()
      .slice(0, LONGEST_SHOWN)
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
  // Loaded on demand, since no other command uses it.
  const { isBaseUrl } = await import("../config/addresses.ts");
  // The message omits the URL, since it may hold a password.
  if (!isBaseUrl(url) && !/^unix:\/./.test(url)) {
    throw new UsageError("--url: allowed: http://host:port, https://host:port, unix:/path");
  }
  const { connectTo, readCases, runSection, sectionsAt } = await import("../conformance/run.ts");
  // An engine that is started reads no configuration.
  const { readCredential } = await import("../config/resolve.ts");
  const refuse = (allowed: string) => new Error(`${file}: needed is ${allowed}`);
  const authorization = file && readCredential(path.resolve(file), true, refuse);
  const connected = connectTo(url, authorization);
  const send: Send = (body) =>
    connected(body).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : "unknown error";
      throw new Error(`no answer from ${url}: ${reason}`, { cause: error });
    });
  const prefix = `conformance_${randomBytes(4).toString("hex")}`;
  let isStopped = false;
  // Finish the running test, so that its databases are dropped.
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
 * Resolves when the engine has to stop: when its gateway is gone, or on a signal if it has none. A
 * gateway's engine ignores signals, since it must outlive the gateway's last request.
 */
function whenToEnd(): Promise<void> {
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
 * Finds the database address and the listen address. The configuration is read only if needed: a
 * file broken since the start must not prevent a gateway's engine from restarting.
 *
 * @throws UsageError for an option that the database does not support
 */
async function placesOf(options: EngineOptions): Promise<{ url: string; listen: string }> {
  // Command lines are public, and the URL may hold a password.
  const { url: given = process.env.GATEHOUSE_ENGINE_URL || undefined, listen } = options;
  const { serviceDirectory: home = "" } =
    given === undefined || listen === undefined ? (await import("./load.ts")).loadFor(options) : {};
  const url = given ?? `sqlite:${path.join(home, "data")}`;
  if (options.databases !== undefined && !/^postgres(ql)?:/.test(url)) {
    throw new UsageError("--databases is for PostgreSQL alone, whose --url begins with postgres:");
  }
  if (options.poolSize !== undefined && url.startsWith("sqlite:")) {
    throw new UsageError("--pool-size is for database servers, not for SQLite files");
  }
  return { url, listen: listen ?? `unix:${path.join(home, "engine.sock")}` };
}

async function serve(options: EngineOptions): Promise<void> {
  const { url, listen } = await placesOf(options);
  const { databases, statementTimeout, poolSize } = options;
  if (options.url?.startsWith("sqlite:") === false) process.title = "gatehouse engine";
  if (process.send !== undefined) answerHeartbeat();
  const end = whenToEnd();
  const isTerminal = process.stdout.isTTY ?? false;
  const log = createLog(await openLogStream(isTerminal), "engine");
  // On a terminal the gateway reports for both, and the engine logs only problems.
  if (isTerminal && process.send !== undefined) log.level = "warn";
  exitOnUncaughtErrors(log);
  // Loaded on demand, since no other command needs the SQL code.
  const { startEngine } = await import("../engine/engine.ts");
  const engine = await startEngine({
    ...{ url, listen, databases, poolSize, log },
    queryTimeLimit: statementTimeout && statementTimeout * 1000,
    authorization: process.env.GATEHOUSE_ENGINE_AUTHORIZATION,
  });
  process.send?.("ready");
  await end;
  await engine.close();
  process.exit();
}

export function engineCommand(): Command {
  const engine = withCommonOptions(withHouseStyle(new Command("engine")))
    .description("run the SQL adapter by itself; it trusts whoever reaches it")
    .enablePositionalOptions()
    .option(
      "--url <url>",
      "the database: sqlite:DIRECTORY (default: data in the service directory), postgres://user@host:port/database or mysql://user@host:port/",
    )
    .addOption(
      new Option(
        "--databases <kind>",
        "what a database of queries is over PostgreSQL: a schema of the one that --url names, or a database of the server (default: schemas)",
      ).choices(["schemas", "databases"]),
    )
    .option(
      "--listen <address>",
      "unix:/path or 127.0.0.1:port (default: engine.sock in the service directory)",
    )
    .option(
      "--statement-timeout <seconds>",
      "how long the database may take for one query (default: 30)",
      numberUpTo(86_400),
    )
    .option(
      "--pool-size <count>",
      "queries that are carried out at one time over a database server (default: 16)",
      numberUpTo(1000),
    )
    .action((options: EngineOptions) =>
      serve(options).catch((error: unknown) => {
        // The open channel to the gateway would keep a failed engine process alive.
        if (process.connected) process.disconnect?.();
        throw error;
      }),
    )
    .addHelpText(
      "after",
      "\nWith $GATEHOUSE_ENGINE_AUTHORIZATION set, every request must carry it as its Authorization header.\n$GATEHOUSE_ENGINE_URL stands for --url, and is not in the list of processes.\nThe password of a PostgreSQL user is better kept in ~/.pgpass or $PGPASSWORD than in the URL, and that of a MySQL user in $MYSQL_PWD.",
    );
  engine
    .command("test")
    .description(
      "send a database that speaks the queries every example, and compare its answers; works in databases of its own, which it makes and drops",
    )
    .requiredOption(
      "--url <url>",
      "where it listens: http://host:port, https://host:port, unix:/path",
    )
    .addOption(
      new Option("--level <level>", "how much of the queries it speaks")
        .choices(["core", "full"])
        .default("core"),
    )
    .option("--authorization-file <file>", "a file that holds the Authorization header to send")
    .option("--json", "as JSON")
    .action(runConformance);
  return engine;
}
