import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { temporaryDirectory } from "../engine/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";

t.test(
  "the engine passes every case through the gateway, with a credential from a file",
  async (t) => {
    const gateway = await startGateway(t);
    const home = temporaryDirectory(t);
    const file = path.join(home, "authorization");
    writeFileSync(file, `Bearer ${await gateway.login()}`, { mode: 0o600 });
    const run = (...flags: string[]) =>
      runWarm(home, ["upstream", "test", "--url", gateway.url, ...flags]);
    const { code, stdout, stderr } = await run("--authorization-file", file, "--level", "full");
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, /^\d+ cases at level full, 0 failed$/m);
    t.match(await run(), { code: 1, stdout: /the status is 401, not 200/ });
    const missing = await run("--authorization-file", `${file}2`);
    t.match(missing, { code: 1, stderr: /allowed: a file that can be read \(ENOENT: / });
  },
);
