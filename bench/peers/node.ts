import path from "node:path";
import { fileURLToPath } from "node:url";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, MEGABYTE, type System } from "./system.ts";
import type { World } from "./world.ts";

const names = {
  bare: "node:http + undici, no check",
  fastify: "Fastify, JWT cached",
  express: "Express",
} as const;

/** Starts a gateway of `servers/` on the same Node as Gatehouse. */
export async function startNode(
  kind: keyof typeof names,
  world: World,
  upstreamPort: number,
): Promise<System> {
  const script = fileURLToPath(new URL(`servers/${kind}.js`, import.meta.url));
  const files = ["ES256.pem", "roles.json"].map((name) => path.join(world.directory, name));
  const flags = [script, `http://127.0.0.1:${upstreamPort}`, ...files];
  const environment = { ...process.env, NODE_ENV: "production" };
  const program = new Program(process.execPath, flags, GATEWAY_CORE, environment);
  const port = Number(await program.printed(/^(\d+)$/m));
  const algorithm = kind === "bare" ? undefined : "ES256";
  const checks = algorithm === undefined ? "nothing" : "token and query";
  return { name: names[kind], port, program, algorithm, checks, largestBody: 10 * MEGABYTE };
}
