{{- define "gatehouse.labels" -}}
app: {{ .Release.Name }}
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

{{- define "gatehouse.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - { name: PGPASSFILE, value: /var/lib/gatehouse/pgpass }
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: config, mountPath: /etc/gatehouse/gateway.toml, subPath: gateway.toml, readOnly: true }
  - { name: store, mountPath: /etc/gatehouse/store, readOnly: true }
  {{- if .Values.accessFile }}
  # A directory, not a subPath, so that changes are seen.
  - { name: access, mountPath: /etc/gatehouse/access, readOnly: true }
  {{- end }}
  - { name: state, mountPath: /var/lib/gatehouse }
  - { name: temporary, mountPath: /tmp }
{{- end }}
