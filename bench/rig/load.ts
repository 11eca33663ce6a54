import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import * as z from "zod";
import type { Program } from "./program.ts";

const script = fileURLToPath(new URL("wrk.lua", import.meta.url));
const resultShape = z.object({
  requests: z.number(),
  microseconds: z.number(),
  /** Responses with status 400 and above. */
  refused: z.number(),
  /** Requests without a response. */
  failed: z.number(),
  /** Microseconds. */
  p50: z.number(),
  p99: z.number(),
});

/** The load of `wrk`. */
export interface Load {
  readonly port: number;
  /** By default `http`; certificates are not verified. */
  readonly scheme?: "http" | "https" | undefined;
  /** By default `/query`. */
  readonly path?: string;
  /** In addition to those of a query. */
  readonly headers?: Readonly<Record<string, string>>;
  /** True for a new connection per request. */
  readonly isClosing?: boolean | undefined;
  readonly connections: number;
  readonly seconds: number;
  readonly tokenFile: string;
  /** GET if absent. */
  readonly bodyFile?: string;
  readonly core?: number;
}

export interface Sample {
  readonly requests: number;
  readonly refused: number;
  readonly failed: number;
  /** Microseconds of user and system time of the measured process per request. */
  readonly cpu: number;
  /** Requests per second. */
  readonly rate: number;
  /** Latency in microseconds with this many busy connections. */
  readonly p50: number;
  readonly p99: number;
}

/** Loads a port in a closed loop and measures the processor time of `measured`. */
export async function load(measured: Pick<Program, "cpuSeconds">, options: Load): Promise<Sample> {
  const { port, scheme = "http", path = "/query" } = options;
  const { connections, seconds, tokenFile, bodyFile = "", core } = options;
  const closing = options.isClosing ? { Connection: "close" } : {};
  const headers = Object.entries({ ...options.headers, ...closing }).flat();
  const pinned = core === undefined ? [] : ["taskset", "-c", String(core)];
  const [command = "", ...flags] = [
    ...pinned,
    "wrk",
    "-t1",
    `-c${connections}`,
    `-d${seconds}s`,
    "--timeout",
    "20s",
    "-s",
    script,
    `${scheme}://127.0.0.1:${port}${path}`,
    "--",
    tokenFile,
    bodyFile,
    ...headers,
  ];
  const before = measured.cpuSeconds();
  const child = spawn(command, flags, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  await once(child, "close");
  const used = measured.cpuSeconds() - before;
  const line = output.split("\n").find((text) => text.startsWith("{"));
  if (line === undefined) throw new Error(`wrk said:\n${output}`);
  const { microseconds, ...rest } = resultShape.parse(JSON.parse(line));
  const { requests } = rest;
  return { ...rest, cpu: (used * 1e6) / requests, rate: requests / (microseconds / 1e6) };
}
