{{- define "gatehouse.labels" -}}
app: {{ .Release.Name }}
{{- end }}

{{- /* Settings that make no working gateway are refused. */}}
{{- define "gatehouse.check" -}}
{{- if not .Values.store.enabled -}}
{{- if gt (int .Values.replicas) 1 }}{{ fail "several replicas share a store: set store.enabled" }}{{ end -}}
{{- if .Values.postgresql.enabled }}{{ fail "the chart's PostgreSQL is for the store: set store.enabled" }}{{ end -}}
{{- else if and (not .Values.upstream.url) (gt (int .Values.replicas) 1) -}}
{{ fail "each replica would have SQLite databases of its own: set upstream.url" }}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.publicUrl) }}{{ fail "an ingress needs publicUrl" }}{{ end -}}
{{- if and .Values.ingress.enabled (not .Values.trustedProxies) }}{{ fail "an ingress needs trustedProxies" }}{{ end -}}
{{- if and .Values.upstream.preset (not (hasPrefix "http" .Values.upstream.url)) }}{{ fail "upstream.preset needs an upstream.url with http:// or https://" }}{{ end -}}
{{- if and .Values.upstream.credential.header (not .Values.upstream.url) }}{{ fail "upstream.credential needs upstream.url" }}{{ end -}}
{{- with .Values.upstream.credential -}}
{{- if ne (empty .header) (empty .secretName) }}{{ fail "upstream.credential needs both header and secretName" }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "gatehouse.storeUrl" -}}
{{- if .Values.store.url -}}
{{ .Values.store.url }}
{{- else if .Values.postgresql.enabled -}}
postgres://gatehouse@{{ .Release.Name }}-postgresql/gatehouse
{{- else -}}
{{ fail "name the store's PostgreSQL in store.url, or set postgresql.enabled" }}
{{- end -}}
{{- end }}

{{- define "gatehouse.basePath" -}}
{{- if .Values.basePath }}{{ .Values.basePath }}{{ else if .Values.upstream.preset }}/_gatehouse{{ end -}}
{{- end }}

{{- /* The port of a server: as given, else that of its URL, else that of its scheme. */}}
{{- define "gatehouse.port" -}}
{{- $url := urlParse .url -}}
{{- $written := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- if .port }}{{ .port }}
{{- else if $written }}{{ $written }}
{{- else if hasPrefix "postgres" $url.scheme }}5432
{{- else if or (eq $url.scheme "mysql") (eq $url.scheme "mariadb") }}3306
{{- else if eq $url.scheme "https" }}443
{{- else }}80
{{- end -}}
{{- end }}

{{- /* Peers of a network policy: pods, a namespace, networks. Nothing means every address. */}}
{{- define "gatehouse.peers" -}}
{{- $peer := dict -}}
{{- with .podLabels }}{{ $_ := set $peer "podSelector" (dict "matchLabels" .) }}{{ end -}}
{{- with .namespace }}{{ $_ := set $peer "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .)) }}{{ end -}}
{{- if $peer }}
- {{ toJson $peer }}
{{- end }}
{{- range .cidrs }}
- ipBlock: { cidr: {{ . | quote }} }
{{- end }}
{{- end }}

{{- define "gatehouse.egress" -}}
- ports:
    - { port: {{ .port }} }
  {{- with include "gatehouse.peers" . }}
  to:
    {{- . | trim | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* The names of files with passwords for PostgreSQL. */}}
{{- define "gatehouse.passwordFiles" -}}
{{- if .Values.store.enabled }}/etc/gatehouse/store/pgpass {{ end -}}
{{- if and .Values.upstream.secretName (hasPrefix "postgres" .Values.upstream.url) }}/etc/gatehouse/upstream/pgpass {{ end -}}
{{- end }}

{{- define "gatehouse.container" -}}
image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - { name: GATEHOUSE_CONFIG, value: /etc/gatehouse/gateway.toml }
  # The gateway creates it with mode 0700. The group may write the volume itself.
  - { name: GATEHOUSE_HOME, value: /var/lib/gatehouse/home }
  {{- if include "gatehouse.passwordFiles" . }}
  - { name: PGPASSFILE, value: /var/lib/gatehouse/pgpass }
  {{- end }}
  {{- if and .Values.upstream.secretName (or (hasPrefix "mysql" .Values.upstream.url) (hasPrefix "mariadb" .Values.upstream.url)) }}
  - name: MYSQL_PWD
    valueFrom: { secretKeyRef: { name: {{ .Values.upstream.secretName }}, key: password } }
  {{- end }}
  {{- range .Values.env }}
  - {{ toJson . }}
  {{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: config, mountPath: /etc/gatehouse/gateway.toml, subPath: gateway.toml, readOnly: true }
  {{- if .Values.store.enabled }}
  - { name: store, mountPath: /etc/gatehouse/store, readOnly: true }
  {{- end }}
  {{- if .Values.upstream.secretName }}
  - { name: upstream, mountPath: /etc/gatehouse/upstream, readOnly: true }
  {{- end }}
  {{- if .Values.upstream.credential.secretName }}
  - { name: credential, mountPath: /etc/gatehouse/credential, readOnly: true }
  {{- end }}
  {{- range .Values.secrets }}
  - { name: secret-{{ . }}, mountPath: /etc/gatehouse/secrets/{{ . }}, readOnly: true }
  {{- end }}
  {{- if .Values.accessFile }}
  # A directory, not a subPath, so that changes are seen.
  - { name: access, mountPath: /etc/gatehouse/access, readOnly: true }
  {{- end }}
  - { name: state, mountPath: /var/lib/gatehouse }
  - { name: temporary, mountPath: /tmp }
{{- end }}
