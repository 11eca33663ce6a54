import { Service } from "../../kit/process.ts";
import type { Teardown } from "../guarded.ts";
import { temporaryDirectory } from "../kit.ts";

export async function startService(
  test: Teardown,
  url: string,
  env: NodeJS.ProcessEnv = {},
  flags: readonly string[] = [],
): Promise<{ service: Service; address: string }> {
  const home = temporaryDirectory(test);
  const command = ["engine", "--url", url, "--listen", "127.0.0.1:0", ...flags];
  const service = new Service(home, command, env);
  test.teardown(() => service.stop("SIGKILL"));
  const { address } = await service.logged(({ msg }) => msg === "engine listening");
  return { service, address: String(address) };
}
