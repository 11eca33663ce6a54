import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { LOAD_CORE } from "./system.ts";

/** Response sizes, each on its own port. */
const answerSizes = [200, 10_000, 10_000_000] as const;
export type AnswerSize = (typeof answerSizes)[number];

/** The database of the measurements: nginx with responses of fixed sizes. */
export interface Upstream {
  readonly ports: ReadonlyMap<AnswerSize, number>;
  readonly program: Program;
}

function answerOf(size: number): string {
  const frame = '{"status":"success","data":[{"name":""}]}';
  return frame.replace('""', `"${"x".repeat(size - frame.length)}"`);
}

/** @param directory for the files of nginx */
export async function startUpstream(directory: string): Promise<Upstream> {
  const { ports, program } = await startAnswering(directory, answerSizes.map(answerOf));
  return { ports: new Map(answerSizes.map((size, at) => [size, ports[at] ?? 0])), program };
}

/** Starts nginx on one core, with each of these responses on its own port. */
export async function startAnswering(
  directory: string,
  answers: readonly string[],
): Promise<{ readonly ports: readonly number[]; readonly program: Program }> {
  const ports: number[] = [];
  const servers: string[] = [];
  for (const answer of answers) {
    const port = await freePort();
    ports.push(port);
    writeFileSync(path.join(directory, `answer-${port}`), answer);
    // nginx serves files only for GET, so POST is rewritten.
    servers.push(`server {
      listen 127.0.0.1:${port};
      location / { root ${directory}; error_page 405 =200 /answer-${port}; return 405; }
      location = /answer-${port} { root ${directory}; }
    }`);
  }
  return { ports, program: await startNginx(directory, ports[0] ?? 0, servers) };
}

/** Starts nginx on one core, which answers each of these paths with its text, by GET and POST. */
export async function startPaths(
  directory: string,
  answers: ReadonlyMap<string, string>,
): Promise<{ readonly port: number; readonly program: Program }> {
  const port = await freePort();
  const root = path.join(directory, `paths-${port}`);
  for (const [name, answer] of answers) {
    const file = path.join(root, name === "/" ? "index.html" : name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, answer);
  }
  const server = `server {
    listen 127.0.0.1:${port};
    types {}
    location / { root ${root}; error_page 405 =200 $uri; }
  }`;
  return { port, program: await startNginx(directory, port, [server]) };
}

async function startNginx(
  directory: string,
  port: number,
  servers: readonly string[],
): Promise<Program> {
  const file = path.join(directory, `upstream-${port}.conf`);
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${directory}/upstream-${port}.pid; error_log stderr crit;
    events { worker_connections 10000; }
    http {
      access_log off; default_type application/json; keepalive_requests 1000000000;
      keepalive_timeout 600s; client_max_body_size 0; client_body_buffer_size 2m;
      open_file_cache max=10; sendfile on; tcp_nopush on;
      client_body_temp_path ${directory}/body;
      ${servers.join("\n")}
    }`,
  );
  const program = new Program("nginx", ["-e", "stderr", "-c", file], LOAD_CORE);
  await program.listening(port);
  return program;
}
