import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import * as z from "zod";

const program = path.join(
  import.meta.dirname,
  "node_modules/@modelcontextprotocol/conformance/dist/index.js",
);

/** Revisions with a frozen set of requirements in the suite. */
export const revisions = ["2026-07-28", "2025-11-25"] as const;
export type Revision = (typeof revisions)[number];

const checkShape = z.array(z.object({ id: z.string(), status: z.string() }));

export type Check = z.output<typeof checkShape>[number];
export type Results = ReadonlyMap<string, readonly Check[]>;

/** Output directories: `server-<scenario>-<time>` or `authorization-server-<scenario>-<time>`. */
const resultName = /^(?:authorization-)?server-(?<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/;

async function readResults(directory: string): Promise<Results> {
  const results = new Map<string, readonly Check[]>();
  for (const name of (await readdir(directory)).toSorted()) {
    const scenario = resultName.exec(name)?.groups?.scenario ?? name;
    const text = await readFile(path.join(directory, name, "checks.json"), "utf8");
    results.set(scenario, checkShape.parse(JSON.parse(text)));
  }
  return results;
}

/**
 * Runs the suite with these flags and reads its results.
 *
 * @param play acts as the user in scenarios that wait for one
 */
export async function runSuite(
  flags: readonly string[],
  play: (suite: ChildProcess) => void = () => {},
): Promise<Results> {
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-conformance-"));
  try {
    const suite = spawn(process.execPath, [program, ...flags, "--output-dir", directory], {
      stdio: ["ignore", "pipe", "inherit"],
      timeout: 300_000,
    });
    suite.stdout?.resume();
    play(suite);
    await once(suite, "close");
    return await readResults(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Runs all scenarios that a revision requires of a server. */
export function runServerSuite(url: string, revision: Revision): Promise<Results> {
  return runSuite(["server", "--url", url, "--requirements", revision]);
}
