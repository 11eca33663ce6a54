import { chmodSync, cpSync, mkdtempSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Certificate } from "../../test/kit/certificate.ts";
import { freePort } from "../../test/kit/free-port.ts";
import { cleanEnvironment } from "../../test/kit/process.ts";
import { tlsSection, writePair } from "../../test/kit/tls-files.ts";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, MEGABYTE, type System } from "./system.ts";
import type { World } from "./world.ts";

const program = fileURLToPath(new URL("../../bin/gatehouse.js", import.meta.url));

export interface GatehouseOptions {
  readonly users?: number;
  readonly workers?: number;
  readonly name?: string;
  /** Flags of Node. */
  readonly nodeFlags?: readonly string[];
  /** Whether it is pinned to one core; true by default. */
  readonly isPinned?: boolean;
  /** Certificate and key for TLS. */
  readonly certificate?: Certificate;
  /** The lines of `[mcp]`, which is off by default. */
  readonly mcp?: string;
  /** More sections of the configuration. */
  readonly config?: string;
  /** The interface of the upstream. */
  readonly preset?: string;
  /** Connections to the upstream. */
  readonly connections?: number;
  /** Changes the access file before the start. */
  readonly editAccess?: (text: string) => string;
}

/** A start with a million users takes 30 seconds. */
const START_ATTEMPTS = 2400;

export interface Gatehouse extends System {
  readonly program: Program;
  readonly metricsPort: number;
  readonly home: string;
}

/**
 * Starts Gatehouse as in production: with audit file, metrics and timeouts.
 *
 * @param upstream a port, or the URL of a database for the embedded engine
 */
export async function startGatehouse(
  world: World,
  upstream: number | string,
  {
    users,
    workers = 1,
    name = "Gatehouse",
    nodeFlags = [],
    isPinned = true,
    certificate,
    mcp = "enabled = false",
    config = "",
    preset,
    connections,
    editAccess = (text) => text,
  }: GatehouseOptions = {},
): Promise<Gatehouse> {
  const home = mkdtempSync(path.join(world.directory, "home-"));
  chmodSync(home, 0o700);
  const metricsPort = await freePort();
  const access = editAccess(world.accessFile(users));
  writeFileSync(path.join(home, "access_control.toml"), access, { mode: 0o600 });
  if (certificate !== undefined) writePair(home, certificate);
  const url = typeof upstream === "string" ? upstream : `http://127.0.0.1:${upstream}`;
  writeFileSync(
    path.join(home, "gateway.toml"),
    `[server]
port = 0
workers = ${workers}
${certificate === undefined ? "" : tlsSection}
[upstream]
url = "${url}"
${preset === undefined ? "" : `preset = "${preset}"`}
${connections === undefined ? "" : `connections = ${connections}`}
[audit]
file = "${home}/audit.log"
[metrics]
listen = "127.0.0.1:${metricsPort}"
[mcp]
${mcp}
${config}
`,
  );
  if (world.keys !== undefined) cpSync(world.keys, path.join(home, "keys"), { recursive: true });
  const core = isPinned ? GATEWAY_CORE : undefined;
  const flags = [...nodeFlags, program, "serve"];
  const running = new Program(
    process.execPath,
    flags,
    core,
    cleanEnvironment(home, { XDG_CACHE_HOME: world.directory }),
  );
  const port = Number(
    await running.printed(/"url":"https?:\/\/127\.0\.0\.1:(\d+)/, START_ATTEMPTS),
  );
  await world.adoptKey(home);
  return {
    name,
    port,
    program: running,
    metricsPort,
    home,
    scheme: certificate === undefined ? "http" : "https",
    algorithm: "ES256",
    checks: "token and query",
    largestBody: 10 * MEGABYTE,
  };
}
