/** Schemathesis, a program of Python's, sends what docs/openapi.yaml allows and what it does not. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { startGateway } from "../kit/gateway.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const VERSION = "4.32.5";
const place = path.join(root, `node_modules/.cache/schemathesis-${VERSION}`);

const hasPython = await run("python3", ["--version"]).then(
  () => true,
  () => false,
);

t.test(
  "every answer is one that the document knows",
  { skip: hasPython ? false : "python3 is not installed", timeout: 1_800_000 },
  async (t) => {
    const program = path.join(place, "bin/schemathesis");
    if (!existsSync(program)) {
      await run("python3", ["-m", "venv", place]);
      await run(path.join(place, "bin/pip"), ["install", `schemathesis==${VERSION}`]);
    }
    const gateway = await startGateway(t);
    const bearer = { headers: { authorization: `Bearer ${await gateway.login()}` } };
    const checks = "status_code_conformance,content_type_conformance,response_schema_conformance";
    const { stdout, code } = await run(
      program,
      [
        ...["run", path.join(root, "docs/openapi.yaml"), "--url", gateway.url],
        ...["--header", `Authorization: ${bearer.headers.authorization}`],
        ...["--checks", checks, "--max-examples", "100", "--seed", "1", "--no-color"],
        // They would end the token that all others need.
        ...["--exclude-operation-id", "postLogout"],
        ...["--exclude-operation-id", "deleteApiUsersByUsernameTokens"],
      ],
      { cwd: gateway.home, maxBuffer: 64 * 1024 * 1024 },
    ).then(
      ({ stdout }) => ({ stdout, code: 0 }),
      ({ stdout, code }) => ({ stdout: String(stdout), code: Number(code) }),
    );
    t.equal(code, 0, code === 0 ? "no answer differs" : stdout.slice(-20_000));
    t.equal(
      (await gateway.request("/api/me", bearer)).status,
      200,
      "the token was good to the end",
    );
  },
);
