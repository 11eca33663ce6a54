/**
 * Kills replicas of two pairs in turn under mixed writes, and checks that every acknowledged write exists
 * afterwards.
 *
 * `node bench/store-kills.ts [--kills 500]`; SIGUSR1 stops it early.
 */
import { parseArgs } from "node:util";
import { killReplicas } from "../test/store/faults/kills.ts";
import { isInside, runInside } from "../test/store/faults/sandbox.ts";

const { values: flags } = parseArgs({ options: { kills: { type: "string", default: "500" } } });

/** @returns the exit code */
async function killAll(): Promise<number> {
  await using opened = new AsyncDisposableStack();
  const teardown = (work: () => unknown) => opened.defer(async () => void (await work()));
  const start = performance.now();
  const early = new AbortController();
  process.once("SIGUSR1", () => early.abort());
  const { kills, users, revocations, lost, gaps } = await killReplicas(
    { teardown },
    Number(flags.kills),
    (kill) => {
      if (kill % 25 === 0) console.log(`${kill} kills`);
    },
    early.signal,
  );
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  console.log(
    `${kills} kills: ${users} users and ${revocations} revocations acknowledged, ` +
      `${lost.length} lost, ${gaps} versions missing; ${seconds} s`,
  );
  for (const one of lost) console.log(`  lost: ${one}`);
  return lost.length + gaps === 0 ? 0 : 1;
}

process.exitCode = (await runInside()) ?? (await killAll());
if (isInside()) process.exit();
