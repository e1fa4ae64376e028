{{- define "koff.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- if not (contains "koff" $name) }}{{ $name = printf "%s-koff" $name }}{{ end -}}
{{- /* The name of a Service may not begin with a digit. */ -}}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "koff-%s" $name }}{{ end -}}
{{- /* The controller adds 11 characters to the name of a StatefulSet, for a label of at most 63. */ -}}
{{- if gt (len $name) 52 }}{{ $name = printf "%s-%s" (trunc 43 $name | trimAll "-") (sha256sum $name | trunc 8) }}{{ end -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{- define "koff.selector" -}}
app.kubernetes.io/name: koff
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "koff.labels" -}}
{{ include "koff.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Shards and saved state need pods with an identity. */}}
{{- define "koff.isStateful" -}}
{{- if or (gt (int .Values.shards) 1) .Values.state.enabled -}}true{{- end -}}
{{- end }}

{{- define "koff.config" -}}
{{- $own := dict "listen" ":9850" -}}
{{- if .Values.state.enabled }}{{ $_ := set $own "state_dir" "/var/lib/koff/state" }}{{ end -}}
{{- toYaml (merge $own .Values.config) -}}
{{- end }}

{{- define "koff.probe" -}}
{{ if .values.webConfig.clientCert -}}
exec:
  command:
    - koff
    - health
    - --listen=:9850
    {{- if eq .path "/readyz" }}
    - --ready
    {{- end }}
    - --client-cert
    - {{ print "/etc/koff-secrets/" .values.webConfig.clientCert | quote }}
    {{- with .values.webConfig.clientKey }}
    - --client-key
    - {{ print "/etc/koff-secrets/" . | quote }}
    {{- end }}
{{- else -}}
httpGet: {path: {{ .path }}, port: http{{ if .values.webConfig.tls }}, scheme: HTTPS{{ end }}}
{{- end }}
timeoutSeconds: 5
{{- end }}

{{- define "koff.pod" -}}
metadata:
  labels:
    {{- toYaml (merge dict (.Values.podLabels | default dict) (include "koff.labels" . | fromYaml)) | nindent 4 }}
  annotations:
    {{- /* A pod reads its configuration at the start: another configuration makes another pod. */}}
    {{- $checksum := dict "checksum/config" (include "koff.config" . | sha256sum) }}
    {{- toYaml (merge dict (.Values.podAnnotations | default dict) $checksum) | nindent 4 }}
spec:
  serviceAccountName: {{ include "koff.name" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    {{- if .Values.state.enabled }}
    fsGroup: 65532
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: koff
      {{- $version := print ":" (.Values.image.tag | default .Chart.AppVersion) }}
      {{- with .Values.image.digest }}{{ $version = print "@" . }}{{ end }}
      image: {{ print .Values.image.repository $version | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - monitor
        - --config
        - /etc/koff/koff.yaml
        {{- if gt (int .Values.shards) 1 }}
        - --shard
        - $(POD_INDEX)/{{ int .Values.shards }}
        {{- end }}
        {{- if .Values.webConfig.key }}
        - --web.config.file
        - {{ print "/etc/koff-secrets/" .Values.webConfig.key | quote }}
        {{- end }}
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- if or .Values.env (gt (int .Values.shards) 1) }}
      env:
        {{- if gt (int .Values.shards) 1 }}
        - name: POD_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
        {{- end }}
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      ports:
        - {name: http, containerPort: 9850}
      startupProbe:
        {{- include "koff.probe" (dict "path" "/healthz" "values" .Values) | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 30
      livenessProbe:
        {{- include "koff.probe" (dict "path" "/healthz" "values" .Values) | nindent 8 }}
        periodSeconds: 15
        failureThreshold: 4
      readinessProbe:
        {{- include "koff.probe" (dict "path" "/readyz" "values" .Values) | nindent 8 }}
        periodSeconds: 10
      resources: {{ toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/koff, readOnly: true}
        {{- if .Values.existingSecret }}
        - {name: secrets, mountPath: /etc/koff-secrets, readOnly: true}
        {{- end }}
        {{- if .Values.state.enabled }}
        - {name: state, mountPath: /var/lib/koff}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - {name: config, configMap: {name: {{ include "koff.name" . }}}}
    {{- if .Values.existingSecret }}
    - {name: secrets, secret: {secretName: {{ .Values.existingSecret | quote }}}}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
{{- end }}
