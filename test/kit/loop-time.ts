import { once } from "node:events";
import { request } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

const probe = fileURLToPath(new URL("./loop-probe.ts", import.meta.url));

function socketOf(home: string): string {
  return path.join(home, "loop-probe.sock");
}

/** The environment of a gateway whose event loop is measured. */
export function measuredEnvironment(home: string): NodeJS.ProcessEnv {
  return { NODE_OPTIONS: `--import=${probe}`, LOOP_PROBE: socketOf(home) };
}

/** The longest turn of the event loop since the last call, in milliseconds of processor time. */
export async function longestTurn(home: string): Promise<number> {
  const asked = request({ socketPath: socketOf(home), path: "/" }).end();
  const [answer] = await once(asked, "response");
  return Number(await text(answer));
}
