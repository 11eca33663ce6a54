import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { temporaryDirectory } from "../engine/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";

t.test("the engine passes every case through the gateway", async (t) => {
  const gateway = await startGateway(t);
  const home = temporaryDirectory(t);
  const file = path.join(home, "authorization");
  writeFileSync(file, `Bearer ${await gateway.login()}`, { mode: 0o600 });
  const flags = ["upstream", "test", "--url", gateway.url, "--authorization-file", file];
  const { code, stdout, stderr } = await runCommand(home, [...flags, "--level", "full"]);
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, /^\d+ cases at level full, 0 failed$/m);
});
