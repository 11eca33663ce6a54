import { randomBytes } from "node:crypto";
import path from "node:path";
import { styleText } from "node:util";
import { Command, Option } from "commander";
import type { Failure, SectionResult, Send } from "../conformance/run.ts";
import type { Level } from "../query/kind.ts";
import { withHouseStyle } from "./options.ts";
import { Cancelled, FAILURE, print, printJson, UsageError } from "./output.ts";

interface TestOptions {
  readonly url: string;
  readonly level: Level;
  readonly authorizationFile?: string;
  readonly json?: true;
}

/** Characters of an answer that are printed; `--json` has all. */
const LONGEST_SHOWN = 4000;

/** @throws UsageError for what is no address of a database; it does not repeat it, since it may hold a password */
function requireUrl(text: string): void {
  const isSocket = /^unix:\/./.test(text);
  const url = isSocket ? undefined : URL.parse(text);
  const isPlain =
    /^https?:$/.test(url?.protocol ?? "") &&
    `${url?.pathname}${url?.search}${url?.hash}${url?.username}${url?.password}` === "/";
  if (isSocket || isPlain) return;
  throw new UsageError("--url: allowed: http://host:port, https://host:port, unix:/path");
}

async function readAuthorization(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined;
  // Loaded here, since an engine that is started reads no configuration.
  const { readCredential } = await import("../config/resolve.ts");
  return readCredential(path.resolve(file), true, (allowed) => {
    return new Error(`${file}: needed is ${allowed}`);
  });
}

/** Says what failed to get an answer, beside what the system says of it. */
function reaching(url: string, send: Send): Send {
  return async (body) => {
    try {
      return await send(body);
    } catch (error) {
      const reason = error instanceof Error ? error.message : "unknown error";
      throw new Error(`no answer from ${url}: ${reason}`, { cause: error });
    }
  };
}

/** What a server answered, without what a terminal would obey. */
function shown(answer: string): string {
  return answer
    .trimEnd()
    .slice(0, LONGEST_SHOWN)
    .replace(/\p{Cc}+/gu, " ");
}

function printFailure({ name, sent, expected, got, difference }: Failure): void {
  print(`  ${name}: ${difference}`);
  print(`    sent      ${sent}`);
  print(`    expected  ${expected.status} ${expected.answer}`);
  print(`    got       ${got.status} ${shown(got.answer)}`);
}

function printSection({ name, cases, failures }: SectionResult): void {
  const isGood = failures.length === 0;
  const word = isGood ? styleText("green", "ok  ") : styleText("red", "FAIL");
  print(`${word}  ${name} (${isGood ? cases : `${failures.length} of ${cases} failed`})`);
  for (const failure of failures) printFailure(failure);
}

async function run({ url, level, authorizationFile, json }: TestOptions): Promise<void> {
  requireUrl(url);
  // Loaded here, since no other command has a use for it.
  const { readCases } = await import("../conformance/cases.ts");
  const { connectTo } = await import("../conformance/run.ts");
  const { runSection, sectionsAt } = await import("../conformance/run.ts");
  const authorization = await readAuthorization(authorizationFile);
  const send = reaching(url, connectTo(url, authorization));
  const prefix = `conformance_${randomBytes(4).toString("hex")}`;
  let isStopped = false;
  // What has begun is finished, so that its databases are dropped.
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

/** `gatehouse engine test`: the conformance tests of databases that speak the queries. */
export function engineTestCommand(): Command {
  return withHouseStyle(new Command("test"))
    .description(
      "send a database that speaks the queries every example, and compare its answers; works in databases of its own, which it makes and drops",
    )
    .addOption(
      new Option(
        "--url <url>",
        "where it listens: http://host:port, https://host:port, unix:/path",
      ).makeOptionMandatory(),
    )
    .addOption(
      new Option("--level <level>", "how much of the queries it speaks")
        .choices(["core", "full"])
        .default("core"),
    )
    .option("--authorization-file <file>", "a file that holds the Authorization header to send")
    .option("--json", "as JSON")
    .action(run);
}
