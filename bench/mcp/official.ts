import { fileURLToPath } from "node:url";
import { GATEWAY_CORE } from "../peers/system.ts";
import { Program } from "../rig/program.ts";

export async function startOfficial(upstream: number): Promise<{
  readonly name: string;
  readonly port: number;
  readonly program: Program;
}> {
  const script = fileURLToPath(new URL("official-server.ts", import.meta.url));
  const flags = [script, `http://127.0.0.1:${upstream}`];
  const environment = { ...process.env, NODE_ENV: "production" };
  const program = new Program(process.execPath, flags, GATEWAY_CORE, environment);
  const port = Number(await program.printed(/^(\d+)$/m));
  return { name: "bare official server", port, program };
}
