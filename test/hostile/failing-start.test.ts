import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

/** Milliseconds for which all that `/mcp` needs is looked for, in vain. */
const SEARCH_MS = 500;

/** Loaded before the gateway: what is behind `/mcp` cannot be loaded. */
const hook = `import { registerHooks } from "node:module";
registerHooks({ resolve(name, context, next) {
  if (!name.endsWith("/open-mcp.ts")) return next(name, context);
  console.log(JSON.stringify({ msg: "looking for it" }));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${SEARCH_MS});
  throw new Error("not to be found");
} });`;

t.test(
  "whoever asks at /mcp while that fails to open is answered, and the start ends",
  async (t) => {
    const home = temporaryHome(t);
    writeFileSync(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:1"\n');
    const port = await freePort();
    const preload = `data:text/javascript,${encodeURIComponent(hook)}`;
    const service = new Service(home, ["serve", "--port", String(port)], {
      GATEHOUSE_ADMIN_PASSWORD: "correct horse",
      NODE_OPTIONS: `--unhandled-rejections=strict --import=${preload}`,
    });
    t.teardown(() => service.stop("SIGKILL"));
    const exit = once(service.child, "exit", { signal: AbortSignal.timeout(PATIENCE_MS) });
    await service.logged(({ msg }) => msg === "looking for it");
    const wire = await Wire.open(`http://127.0.0.1:${port}`);
    const headers = { Host: "127.0.0.1", Authorization: "Bearer a.b.c" };
    wire.send(wireRequest("POST /mcp", headers).replace("Host: gate.test\r\n", ""));
    t.match(await wire.untilClosed(), /^HTTP\/1\.1 500 .*"code":"internal_error"/s);
    t.strictSame(await exit, [1, null]);
    t.match(service.output, /^gatehouse: .*not to be found$/m);
  },
);
