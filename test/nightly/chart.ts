/** Helm renders the chart, and the types of the Kubernetes API read it. Both need Go. */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { deployedPath } from "../deploy/programs.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const HELM = "v3.22.0";
const KUBERNETES = "v0.37.0";
const place = path.join(root, `node_modules/.cache/helm-${HELM}-kubernetes-${KUBERNETES}`);
const env = { ...process.env, GOBIN: place, GOFLAGS: "-modcacherw" };
const hasGo = await run("go", ["version"]).then(
  () => true,
  () => false,
);
const options = { skip: hasGo ? false : "Go is not installed", timeout: 1_800_000 };

/** Decodes as the API server does with `fieldValidation=Strict`. */
const decoder = `package main

import (
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

func main() {
	scheme := runtime.NewScheme()
	appsv1.AddToScheme(scheme)
	corev1.AddToScheme(scheme)
	networkingv1.AddToScheme(scheme)
	policyv1.AddToScheme(scheme)
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, name := range os.Args[1:] {
		content, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		for _, document := range strings.Split("\\n"+string(content), "\\n---\\n") {
			if !strings.Contains(document, "\\nkind: ") {
				continue
			}
			if object, _, err := strict.Decode([]byte(document), nil, nil); err != nil {
				fmt.Printf("%s: %v\\n", name, err)
			} else {
				fmt.Fprintln(os.Stderr, object.GetObjectKind().GroupVersionKind().Kind)
			}
		}
	}
}
`;

async function build(): Promise<void> {
  if (existsSync(path.join(place, "decode"))) return;
  const sources = path.join(place, "src");
  mkdirSync(sources, { recursive: true });
  writeFileSync(path.join(sources, "main.go"), decoder);
  const requirements = ["k8s.io/api", "k8s.io/apimachinery"].map((each) => `${each} ${KUBERNETES}`);
  const module = `module decode\n\ngo 1.24\n\nrequire (\n${requirements.join("\n")}\n)\n`;
  writeFileSync(path.join(sources, "go.mod"), module);
  await run("go", ["install", `helm.sh/helm/v3/cmd/helm@${HELM}`], { env });
  await run("go", ["mod", "tidy"], { cwd: sources, env });
  await run("go", ["build", "-o", path.join(place, "decode"), "."], { cwd: sources, env });
}

const rendered = readdirSync(deployedPath("helm/rendered")).map((file) => `helm/rendered/${file}`);
const files = ["kubernetes.yaml", ...rendered].map((file) => deployedPath(file));

t.test("the API's own types accept every rendered set-up", options, async (t) => {
  await build();
  const { stdout, stderr } = await run(path.join(place, "decode"), files);
  t.equal(stdout, "");
  t.ok(stderr.trim().split("\n").length > 35, "resources of all files are decoded");
  const broken = path.join(place, "broken.yaml");
  const [first = ""] = files;
  writeFileSync(broken, readFileSync(first, "utf8").replaceAll("readinessProbe", "readyProbe"));
  const refused = await run(path.join(place, "decode"), [broken]);
  t.match(refused.stdout, 'unknown field "spec.template.spec.containers[0].readyProbe"');
});

t.test("helm accepts the chart and renders every set-up as it is committed", options, async (t) => {
  await build();
  const program = path.join(place, "helm");
  const chart = deployedPath("helm/gatehouse");
  t.match((await run(program, ["lint", "--strict", chart])).stdout, "0 chart(s) failed");
  for (const file of files) {
    const name =
      path.basename(file) === "kubernetes.yaml" ? "postgresql.yaml" : path.basename(file);
    const values = deployedPath(`helm/examples/${name}`);
    const flags = ["gatehouse", chart, "--namespace", "gatehouse", "--values", values];
    const { stdout } = await run(program, ["template", ...flags]);
    t.ok(readFileSync(file, "utf8").endsWith(stdout), name);
  }
  const byDefault = path.join(place, "default.yaml");
  writeFileSync(byDefault, (await run(program, ["template", "gatehouse", chart])).stdout);
  t.equal((await run(path.join(place, "decode"), [byDefault])).stdout, "", "the defaults");
  for (const flag of [
    "replicas=2",
    "store.enabled=true",
    "postgresql.enabled=true",
    "ingress.enabled=true",
    "upstream.preset=chroma",
    "upstream.credential.header=x-api-key",
  ]) {
    await t.rejects(run(program, ["template", "gatehouse", chart, "--set", flag]), flag);
  }
});
