import { writeFileSync } from "node:fs";
import path from "node:path";
import { temporaryHome } from "../../kit/gateway.ts";
import { Service } from "../../kit/process.ts";
import type { Teardown } from "../guarded.ts";

/**
 * Starts a gateway over a database with authentication off, which is the reference upstream.
 *
 * @param keys further keys of `[upstream]`
 */
export async function startService(
  test: Teardown,
  url: string,
  env: NodeJS.ProcessEnv = {},
  keys: Readonly<Record<string, string | number>> = {},
): Promise<{ service: Service; address: string }> {
  const home = temporaryHome(test);
  const lines = Object.entries({ url, ...keys }).map(
    ([key, value]) => `${key} = ${JSON.stringify(value)}`,
  );
  const parts = ["[auth]", "enabled = false", "[mcp]", "enabled = false", "[upstream]", ...lines];
  writeFileSync(path.join(home, "gateway.toml"), `${parts.join("\n")}\n`, { mode: 0o600 });
  const service = new Service(home, ["serve", "--port", "0"], env);
  test.teardown(() => service.stop("SIGKILL"));
  const { url: address } = await service.logged(({ msg }) => /^listening on /.test(String(msg)));
  return { service, address: String(address) };
}
