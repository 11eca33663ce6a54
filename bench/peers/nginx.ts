import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, MEGABYTE, type System } from "./system.ts";
import type { World } from "./world.ts";

const modules = "/usr/lib/nginx/modules/ngx_http_js_module.so";

/** Starts nginx with one worker and the checks in njs. */
export async function startNginx(world: World, upstreamPort: number): Promise<System> {
  const { directory } = world;
  const script = readFileSync(new URL("servers/gate.njs", import.meta.url), "utf8");
  writeFileSync(path.join(directory, "gate.js"), script.replace("@DIRECTORY@", directory));
  const port = await freePort();
  const file = path.join(directory, "nginx-njs.conf");
  writeFileSync(
    file,
    `load_module ${modules};
    daemon off; master_process off; pid ${directory}/nginx-njs.pid; error_log stderr crit;
    events { worker_connections 10000; }
    http {
      access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
      client_max_body_size 0; client_body_buffer_size 2m; client_body_temp_path ${directory}/njs;
      js_path ${directory}; js_import gate from gate.js;
      upstream database { server 127.0.0.1:${upstreamPort}; keepalive 64;
        keepalive_requests 1000000000; }
      server {
        listen 127.0.0.1:${port};
        location /query { js_content gate.query; }
        location @upstream { proxy_pass http://database; proxy_http_version 1.1;
          proxy_set_header Connection ""; proxy_set_header Authorization ""; }
      }
    }`,
  );
  const program = new Program("nginx", ["-e", "stderr", "-c", file], GATEWAY_CORE);
  await program.listening(port);
  const seen = {
    algorithm: "ES256",
    checks: "token and query",
    largestBody: MEGABYTE * 2,
  } as const;
  return { name: "nginx, njs", port, program, ...seen };
}
