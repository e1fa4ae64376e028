{{- define "koff.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}{{- if not (contains "koff" .Release.Name) }}-koff{{ end -}}
{{- end }}

{{- define "koff.selector" -}}
app.kubernetes.io/name: koff
app.kubernetes.io/instance: {{ .Release.Name }}
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
httpGet: {path: {{ .path }}, port: http{{ if .values.webConfig.tls }}, scheme: HTTPS{{ end }}}
{{- end }}

{{- define "koff.pod" -}}
metadata:
  labels:
    {{- include "koff.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # A pod reads its configuration at the start: another configuration makes another pod.
    checksum/config: {{ include "koff.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "koff.name" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: koff
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - monitor
        - --config
        - /etc/koff/koff.yaml
        {{- if gt (int .Values.shards) 1 }}
        - --shard
        - $(POD_INDEX)/{{ .Values.shards }}
        {{- end }}
        {{- if .Values.webConfig.key }}
        - --web.config.file
        - /etc/koff-secrets/{{ .Values.webConfig.key }}
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
        timeoutSeconds: 5
        failureThreshold: 4
      readinessProbe:
        {{- include "koff.probe" (dict "path" "/readyz" "values" .Values) | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
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
  volumes:
    - {name: config, configMap: {name: {{ include "koff.name" . }}}}
    {{- if .Values.existingSecret }}
    - {name: secrets, secret: {secretName: {{ .Values.existingSecret }}}}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end }}
