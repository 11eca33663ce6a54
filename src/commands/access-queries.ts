import { readFile } from "node:fs/promises";
import { buffer } from "node:stream/consumers";
import * as z from "zod";
import { parseSteps } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { counted } from "../counted.ts";
import { openGrammar } from "../gateway/query-grammar.ts";
import { type Asker, type Outcome, outcomeOf, type Setting } from "../gateway/query-outcome.ts";
import { keepSpelling } from "../json/exact-numbers.ts";
import { didYouMean } from "../suggestion.ts";
import { lineLocator } from "../toml/outline.ts";
import { parseToml } from "../toml/values.ts";
import type { QuestionOptions } from "./access-questions.ts";
import { loadFor } from "./load.ts";
import { readAccess } from "./operator.ts";
import type { CommonOptions } from "./options.ts";
import { FAILURE, print, printJson } from "./output.ts";

/** What `gatehouse access explain` and `test` decide on, and how they show it. */

async function settingOf(loaded: LoadedConfiguration): Promise<Setting> {
  const queries = openGrammar(loaded);
  await queries.known;
  return { queries, form: loaded.configuration.upstream.query_form };
}

/** Another access file than the gateway's own, which is nobody's yet. */
interface FileOption {
  readonly file?: string;
}

async function snapshotFor(loaded: LoadedConfiguration, { file }: FileOption): Promise<Snapshot> {
  return file === undefined ? readAccess(loaded) : readNamedAccess(file);
}

/** Reads an access file that need not be private, such as one in a repository. */
export async function readNamedAccess(file: string): Promise<Snapshot> {
  return (await runCooperatively(parseSteps(await readFile(file), file))).snapshot;
}

/** What each operation of a query came to, in the words of the decision. */
function viewDecisions({ query, decided }: Outcome): object[] {
  return (decided?.decisions ?? []).map(({ filters, additions, ...decision }, at) => {
    const { operation, database, tables } = query?.accesses[at] ?? {};
    const conditions = (texts: readonly string[]) =>
      texts.map((text) => JSON.parse(text, keepSpelling));
    return {
      operation,
      database,
      tables,
      ...decision,
      ...(filters === undefined ? {} : { filters: conditions(filters) }),
      ...(additions === undefined ? {} : { added: conditions(additions) }),
    };
  });
}

function viewOutcome(asker: Asker, outcome: Outcome): object {
  const { query: _, decided, body, ...rest } = outcome;
  return {
    ...asker,
    ...rest,
    decisions: viewDecisions(outcome),
    limits: decided?.limits ?? [],
    approvals: decided?.approvals ?? [],
    ...(body === undefined ? {} : { body: body.toString() }),
  };
}

function printOutcome({ user }: Asker, outcome: Outcome): void {
  const { allowed, code, message, element, reason, query, decided, body } = outcome;
  const where = element === undefined ? "" : ` (element ${element}: ${reason})`;
  const why = message === undefined ? "" : `: ${message}`;
  print(allowed ? `allowed: ${user}` : `denied: ${user}: ${code}${where}${why}`);
  for (const [at, { role, entry, boundary, additions = [] }] of (
    decided?.decisions ?? []
  ).entries()) {
    const { operation, database, tables = [] } = query?.accesses[at] ?? {};
    const place = tables.length === 0 ? database : `${database}.${tables.join(", ")}`;
    const by = entry === undefined ? "no entry" : `${role} by the entry for ${entry}`;
    const within = boundary === undefined ? "" : `, within the boundary ${boundary}`;
    const added = additions.length === 0 ? "" : `; added: ${additions.join(", ")}`;
    print(`${operation} on ${place}: ${by}${within}${added}`);
  }
  for (const { elements, changes, rows } of decided?.limits ?? []) {
    const what = changes === undefined ? "answered" : "changed";
    const most = `${counted(changes ?? rows ?? 0, "row")} ${what}`;
    print(`the database keeps: at most ${most} by element ${elements.join(", ")}`);
  }
  for (const { permissions, approvers, entry, boundary } of decided?.approvals ?? []) {
    const by = approvers?.join(" or ") ?? "whoever may grant there";
    print(`${permissions.join(", ")} needs approval by ${by} (${entry ?? boundary})`);
  }
  if (body !== undefined) print(`\n${body.toString()}`);
}

/** `access explain`: the decision on the query on standard input, and the bytes that would go up. */
export async function explainQuery(
  user: string,
  options: QuestionOptions & FileOption,
): Promise<void> {
  const loaded = loadFor(options);
  const snapshot = await snapshotFor(loaded, options);
  const setting = await settingOf(loaded);
  const asker = { user, via: options.via, client: options.client };
  const outcome = outcomeOf(snapshot, asker, await buffer(process.stdin), setting);
  if (options.json) printJson(viewOutcome(asker, outcome));
  else printOutcome(asker, outcome);
  if (!outcome.allowed) process.exitCode = FAILURE;
}

const expectationShape = z.strictObject({
  user: z.string(),
  via: z.enum(["query", "mcp"]).default("query"),
  client: z.string().optional(),
  query: z.string(),
  allowed: z.boolean(),
  code: z.string().optional(),
});
const expectations = z.strictObject({ expect: z.array(expectationShape).min(1) });
type Expectation = z.output<typeof expectationShape>;

/** An expectation, and the line of the file at which it begins. */
interface PlacedExpectation extends Expectation {
  readonly line: number;
}

function reasonOf(issue: z.core.$ZodIssue | undefined): string {
  if (issue?.code === "unrecognized_keys") {
    const [key = ""] = issue.keys;
    const allowed = Object.keys(expectationShape.shape);
    return `unknown key \`${key}\`; allowed: ${allowed.join(", ")}${didYouMean(key, allowed)}`;
  }
  const key = issue?.path.slice(2).join(".");
  return key ? `\`${key}\`: ${issue?.message}` : `${issue?.message}`;
}

/** @throws Error that names the file and the line */
async function readExpectations(file: string): Promise<PlacedExpectation[]> {
  const { text, values } = parseToml(await readFile(file, "utf8"), file);
  const lineOf = lineLocator(text);
  const parsed = expectations.safeParse(values);
  if (parsed.success) {
    return parsed.data.expect.map((one, at) => ({ ...one, line: lineOf(["expect", at]) ?? 1 }));
  }
  const { issues } = parsed.error;
  const issue = issues.find(({ code }) => code === "unrecognized_keys") ?? issues[0];
  const [, at] = issue?.path ?? [];
  const where = typeof at === "number" ? `${file}:${lineOf(["expect", at])}` : file;
  throw new Error(`${where}: [[expect]]: ${reasonOf(issue)}`);
}

/** True if the outcome is what was expected; of a Batch, the code may be that of the element. */
function isAsExpected({ allowed, code }: Expectation, outcome: Outcome): boolean {
  if (allowed !== outcome.allowed) return false;
  return code === undefined || code === outcome.code || code === outcome.reason;
}

function inWords(allowed: boolean, code: string | undefined): string {
  if (allowed) return "allowed";
  return code === undefined ? "denied" : `denied with ${code}`;
}

/** `access test`: holds the access file against what a file expects of it. */
export async function testAccess(file: string, options: CommonOptions & FileOption): Promise<void> {
  const loaded = loadFor(options);
  const expected = await readExpectations(file);
  const snapshot = await snapshotFor(loaded, options);
  const setting = await settingOf(loaded);
  const differing = expected.flatMap((expectation) => {
    const outcome = outcomeOf(snapshot, expectation, Buffer.from(expectation.query), setting);
    return isAsExpected(expectation, outcome) ? [] : [{ expectation, outcome }];
  });
  if (options.json) {
    printJson(
      differing.map(({ expectation: { line, ...wanted }, outcome }) => ({
        line,
        expected: wanted,
        found: viewOutcome(wanted, outcome),
      })),
    );
  } else {
    for (const { expectation, outcome } of differing) {
      const { line, user, allowed, code } = expectation;
      const found = inWords(outcome.allowed, outcome.reason ?? outcome.code);
      const why = outcome.message === undefined ? "" : `: ${outcome.message}`;
      print(`${file}:${line}: ${user}: expected ${inWords(allowed, code)}, found ${found}${why}`);
    }
    print(`${expected.length} expectations, ${differing.length} differ`);
  }
  if (differing.length > 0) process.exitCode = FAILURE;
}
