/** Schemathesis, a Python program, sends valid and invalid requests of docs/openapi.yaml. */
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
  "every answer matches the OpenAPI document",
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
        "run",
        path.join(root, "docs/openapi.yaml"),
        "--url",
        gateway.url,
        "--header",
        `Authorization: ${bearer.headers.authorization}`,
        "--checks",
        checks,
        "--max-examples",
        "100",
        "--seed",
        "1",
        "--no-color",
        // They would revoke the token of all others.
        "--exclude-operation-id",
        "postLogout",
        "--exclude-operation-id",
        "deleteApiUsersByUsernameTokens",
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
