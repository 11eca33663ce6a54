/** `gatehouse access test`: an access file against what is expected of it. */
import { readFile } from "node:fs/promises";
import * as z from "zod";
import { type Outcome, outcomeOf } from "../gateway/query-outcome.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import { type CommonOptions, loadFor } from "./options.ts";
import { FAILURE, print, printJson } from "./output.ts";
import { settingOf, snapshotFor, viewOutcome } from "./query-outcome.ts";

const expectations = z.strictObject({
  expect: z
    .array(
      z.strictObject({
        user: z.string(),
        via: z.enum(["query", "mcp"]).default("query"),
        client: z.string().optional(),
        query: z.string(),
        allowed: z.boolean(),
        code: z.string().optional(),
      }),
    )
    .min(1),
});
type Expectation = z.output<typeof expectations>["expect"][number];

/** An expectation, and the line of the file at which it begins. */
interface PlacedExpectation extends Expectation {
  readonly line: number;
}

/** @throws Error that names the file and the line */
async function readExpectations(file: string): Promise<PlacedExpectation[]> {
  const text = await readFile(file, "utf8");
  const lines = text
    .split("\n")
    .flatMap((line, at) => (/^\s*\[\[\s*expect\s*\]\]/.test(line) ? [at + 1] : []));
  try {
    const parsed = expectations.safeParse(parseToml(text, file).values);
    if (parsed.success)
      return parsed.data.expect.map((one, at) => ({ ...one, line: lines[at] ?? 1 }));
    const [issue] = parsed.error.issues;
    const at = issue?.path.find((key) => typeof key === "number");
    const key = issue?.path.slice(2).join(".");
    const where = typeof at === "number" ? `${file}:${lines[at]}` : file;
    const about = key ? `\`${key}\`: ` : "";
    throw new Error(`${where}: [[expect]]: ${about}${issue?.message}`);
  } catch (error) {
    if (error instanceof TomlSyntaxError) throw new Error(error.message);
    throw error;
  }
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

interface TestOptions extends CommonOptions {
  readonly file?: string;
  readonly json?: true;
}

/** `access test`: holds the access file against what a file expects of it. */
export async function testAccess(file: string, options: TestOptions): Promise<void> {
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
