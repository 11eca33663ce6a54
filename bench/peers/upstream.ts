import { writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { LOAD_CORE } from "./system.ts";

/** Bytes of the answers that the upstream gives, each on a port of its own. */
export const answerSizes = [200, 10_000, 10_000_000] as const;
export type AnswerSize = (typeof answerSizes)[number];

/** The database in these measurements: nginx with answers of fixed sizes. */
export interface Upstream {
  readonly ports: ReadonlyMap<AnswerSize, number>;
  readonly program: Program;
}

function answerOf(size: number): string {
  const frame = '{"status":"success","data":[""]}';
  return frame.replace('""', `"${"x".repeat(size - frame.length)}"`);
}

/** Starts nginx on one core; `directory` takes its files. */
export async function startUpstream(directory: string): Promise<Upstream> {
  const ports = new Map<AnswerSize, number>();
  const servers: string[] = [];
  for (const size of answerSizes) {
    const port = await freePort();
    ports.set(size, port);
    writeFileSync(path.join(directory, `answer-${size}`), answerOf(size));
    // A file answers GET alone: what was posted is turned into that.
    servers.push(`server {
      listen 127.0.0.1:${port};
      location / { root ${directory}; error_page 405 =200 /answer-${size}; return 405; }
      location = /answer-${size} { root ${directory}; }
    }`);
  }
  const file = path.join(directory, "upstream.conf");
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${directory}/upstream.pid; error_log stderr crit;
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
  await program.listening(ports.get(200) ?? 0);
  return { ports, program };
}
