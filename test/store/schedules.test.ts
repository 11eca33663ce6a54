import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import t from "tap";
import { nightly } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";

/** Runs schedules of faults as an operator of `bench/` would, in a process of its own. */
async function runSchedules(flags: string[]): Promise<{ code: number | null; output: string }> {
  const [program, command] = nodeCommand(["bench/store-faults.ts", ...flags]);
  const child = spawn(program, command, { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill());
  const [output] = await Promise.all([text(child.stdout), once(child, "exit")]);
  return { code: child.exitCode, output };
}

t.test(
  "while replicas, networks and the store fail, one history explains all answers",
  nightly,
  async (t) => {
    const flags = ["--schedules", "3", "--seed", "16"];
    const { code, output } = await runSchedules(flags);
    t.comment(output);
    t.equal(code, 0);
    t.match(output, /3 schedules, .* 0 schedules wrong/);
  },
);
